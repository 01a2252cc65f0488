"""The store as one node's decisions see it: every write compares the node's fence.

A write whose outcome is not known may be applied at any later time, and a key that must be absent may be absent again
by then: created by a second attempt, deleted since. Once the fence has moved, a write is either applied already or
never will be.
"""

from collections.abc import Sequence

from headrace.metadata import records
from headrace.metadata.store import Cmp, MetaStore, Put, Snapshot, TxnResult


class FencedStore:
    def __init__(self, store: MetaStore, node_id: int) -> None:
        self._store = store
        self._key = records.fence_key(node_id)
        self._rev = -1  # no key has it: nothing can be written before the first move

    async def move(self) -> None:
        """When it returns, what was written before is settled. Raises OutcomeUnknown; then it is not."""
        moved = False
        while not moved:
            known = [kv for kv in (await self._store.load(self._key)).kvs if kv.key == self._key]
            count = records.decode(records.FenceRecord, self._key, known[0].value).moved if known else 0
            value = records.encode(records.FenceRecord(count + 1))
            moved, self._rev = await self._store.txn(
                [Cmp(self._key, known[0].mod_rev if known else 0)], [Put(self._key, value)]
            )

    async def load(self, prefix: bytes) -> Snapshot:
        return await self._store.load(prefix)

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
        return await self._store.txn([*when, Cmp(self._key, self._rev)], puts, deletes)

    async def close(self) -> None:
        await self._store.close()
