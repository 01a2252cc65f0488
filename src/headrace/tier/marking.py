"""Whether a store is this cluster's own: an object marks it, whose id the metadata store remembers.

A place where a disk is not mounted, or the store of somebody else, would take new objects as well, and have none of the
old ones. The mark is made with the first use of a tier, before anything else is stored; a store without it is away.
"""

from contextlib import suppress
from typing import Protocol

from headrace.tier.layout import cluster_prefix
from headrace.tier.probing import probe
from headrace.tier.store import ObjectExists, ObjectMissing, ObjectStore, StoreUnavailable

MARK_PREFIX = "headrace-store/"
CONTENT = b"The object store of a cluster of Headrace, which does not use it without this object.\n"


class Marks(Protocol):
    """What the metadata store remembers. Either may fail with errors of its own."""

    async def read(self) -> str | None: ...

    async def claim(self, mark: str) -> str:
        """Remembers it if there is none. The one that counts from now on."""
        ...


def mark_key(cluster_id: str, mark: str) -> str:
    return f"{MARK_PREFIX}{cluster_prefix(cluster_id)}{mark}"


async def recognise(store: ObjectStore, marks: Marks, cluster_id: str, new_mark: str, probe_bits: int) -> None:
    """Until it returns nothing may be written. Raises StoreUnavailable, Refused, and what `marks` raises.

    `new_mark` is for a cluster that has none, and the same in all attempts of a process: what it wrote may be in doubt.
    `probe_bits` are new ones each time.
    """
    known = await marks.read()
    if known is not None:
        await check(store, cluster_id, known)
        await probe(store, probe_bits)
        return
    await store.begin()
    await probe(store, probe_bits)
    with suppress(ObjectExists):
        await store.put(mark_key(cluster_id, new_mark), [CONTENT])
    known = await marks.claim(new_mark)
    if known != new_mark:
        await store.delete(mark_key(cluster_id, new_mark))
    await check(store, cluster_id, known)


async def check(store: ObjectStore, cluster_id: str, mark: str) -> None:
    """Raises StoreUnavailable."""
    key = mark_key(cluster_id, mark)
    try:
        await store.size(key)
    except ObjectMissing:
        raise StoreUnavailable(
            f"This is not the object store that the cluster uses, or its disk is not mounted: there is no {key}."
        ) from None
