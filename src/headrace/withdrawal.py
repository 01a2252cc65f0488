"""A registration whose process is known to be dead ends at once, not with its lease.

The lock of the data directory is the proof: whoever gets it knows that no process serves from there. What is taken
back is the one incarnation that the directory tells of, and nothing that came after it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from headrace.core.cluster import BrokerRecord
from headrace.metadata import records
from headrace.metadata.opening import open_store
from headrace.metadata.store import KV, Cmp, MetadataStoreError, MetaStore, OutcomeUnknown
from headrace.storage.checkpoints import CorruptCheckpoint
from headrace.storage.files import AlreadyLocked, Files
from headrace.storage.identity import INCARNATION, LEASE
from headrace.storage.os_files import OsFiles
from headrace.storage.properties import parse_meta_properties
from headrace.system import SystemClock, ThreadOffload, origin_of

LOCK_PATH = "logs/.lock"
META_PATH = "meta.properties"
OPEN_FILES_MAX = 8
ATTEMPTS = 5
RETRY_S = 0.1


class NotWithdrawn(Exception):
    """It could not be done, or must not be. One sentence."""


class Ending(Enum):
    WITHDRAWN = auto()
    GONE = auto()
    """Nothing is registered under the node's number."""
    ANOTHER = auto()
    """Another incarnation is: it stays."""
    NEVER = auto()
    """The directory tells of no registration."""


class Dead(NamedTuple):
    """The last incarnation of a node, as its data directory tells of it."""

    node_id: int
    incarnation: str
    lease_id: int
    origin: str


class Withdrawn(NamedTuple):
    node_id: int
    ending: Ending


async def withdraw(data: str, metadata: str, timeout_s: float) -> Withdrawn:
    """`data` and `metadata` as a node is given them. Raises NotWithdrawn."""
    dead = last_incarnation(OsFiles(OPEN_FILES_MAX), data.split(",")[0], origin_of)
    if not dead.incarnation:
        return Withdrawn(dead.node_id, Ending.NEVER)
    offload = ThreadOffload()
    try:
        async with asyncio.timeout(timeout_s):
            store = await open_store(metadata, offload, SystemClock(), may_create=False)
            try:
                return Withdrawn(dead.node_id, await _withdraw_patiently(store, dead))
            finally:
                await store.close()
    except TimeoutError:
        raise NotWithdrawn(
            f"Node {dead.node_id} was not withdrawn in {timeout_s:g} s: {metadata} does not answer"
        ) from None
    except (MetadataStoreError, OSError) as failure:
        raise NotWithdrawn(f"Node {dead.node_id} was not withdrawn: {failure}") from failure
    finally:
        offload.close()


def last_incarnation(files: Files, path: str, origin_of: Callable[[str], str]) -> Dead:
    """The lock is held no longer than it takes to read: whoever starts there next is another incarnation."""
    try:
        lock = files.lock(f"{path}/{LOCK_PATH}")
    except AlreadyLocked:
        raise NotWithdrawn(f"A node is running on {path}: stop it, then it withdraws itself") from None
    except OSError as failure:
        raise NotWithdrawn(f"{path} is no data directory of a node: {failure.strerror}") from failure
    try:
        meta = parse_meta_properties(files.read(f"{path}/{META_PATH}").decode())
        lease_id = int(meta.own.get(LEASE, "0"))
    except (OSError, CorruptCheckpoint, ValueError) as failure:
        raise NotWithdrawn(f"{path}/{META_PATH} does not say whose directory this is: {failure}") from failure
    finally:
        lock.release()
    return Dead(meta.node_id, meta.own.get(INCARNATION, ""), lease_id, origin_of(path))


async def _withdraw_patiently(store: MetaStore, dead: Dead) -> Ending:
    """Every attempt looks anew, so that one whose outcome is not known may be followed by another."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await withdraw_from(store, dead)
        except (MetadataStoreError, OutcomeUnknown):
            await asyncio.sleep(RETRY_S)
    try:
        return await withdraw_from(store, dead)
    except OutcomeUnknown as failure:
        raise MetadataStoreError(str(failure)) from failure


async def withdraw_from(store: MetaStore, dead: Dead) -> Ending:
    """All that the incarnation holds ends in one revision. Raises MetadataStoreError, OutcomeUnknown."""
    key = records.broker_key(dead.node_id)
    while True:
        found = await _find(store, key)
        if found is None:
            return Ending.GONE
        record = records.decode(BrokerRecord, key, found.value)
        if (record.incarnation, record.origin) != (dead.incarnation, dead.origin):
            return Ending.ANOTHER
        when = [Cmp(key, found.create_rev, "create")]
        deletes = [key]
        office = await _find(store, records.CONTROLLER_KEY)
        if office is not None:
            holder = records.decode(records.ControllerRecord, records.CONTROLLER_KEY, office.value)
            if holder.incarnation == dead.incarnation:
                when.append(Cmp(records.CONTROLLER_KEY, office.mod_rev))
                deletes.append(records.CONTROLLER_KEY)
        if (await store.txn(when, deletes=deletes)).ok:
            await _revoke(store, dead.lease_id)
            return Ending.WITHDRAWN


async def _revoke(store: MetaStore, lease_id: int) -> None:
    """What else stands under the lease. It would end by itself: a failure changes nothing."""
    with contextlib.suppress(MetadataStoreError, OutcomeUnknown):
        await store.revoke(lease_id)


async def _find(store: MetaStore, key: bytes) -> KV | None:
    return next((kv for kv in (await store.load(key)).kvs if kv.key == key), None)
