"""Single ownership: one process at a time has a partition, or any other thing with a name, and is known to have it.

async with headrace.own.claim("127.0.0.1:9092", "indexers", ["orders-0"]) as ownership:
    async with ownership.producer() as producer:
        ...
"""

from headrace.own.claims import Exclusive, Resources, claim
from headrace.own.clients import OwnedConsumer, OwnedProducer
from headrace.own.errors import AlreadyOwned, Owner, OwnershipLost
from headrace.own.ownership import Ownership
from headrace.own.sync import SyncConsumer, SyncOwnership, SyncProducer, claim_sync

__all__ = [
    "AlreadyOwned",
    "Exclusive",
    "OwnedConsumer",
    "OwnedProducer",
    "Owner",
    "Ownership",
    "OwnershipLost",
    "Resources",
    "SyncConsumer",
    "SyncOwnership",
    "SyncProducer",
    "claim",
    "claim_sync",
]
