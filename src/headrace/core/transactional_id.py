"""Which transactional ids are kept together.

The attempts of one Spark query end together, by one record: their ids have a form of their own, and all that begin
with the same scope and query belong to one coordinator. Every other id is placed by itself, as Kafka does.
"""

import re
from typing import Final

ATTEMPT_PREFIX: Final = "hr1"
_SCOPE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PARTS: Final = 7
"""hr1:scope:query:batch:partition:run:attempt"""
_PLACED_BY: Final = 3


def placement_key(transactional_id: str) -> str:
    """What is hashed to find the coordinator."""
    parts = transactional_id.split(":")
    if len(parts) != _PARTS or parts[0] != ATTEMPT_PREFIX or not _SCOPE.fullmatch(parts[1]):
        return transactional_id
    return ":".join(parts[:_PLACED_BY])
