"""Which object store is the cluster's, as the metadata store remembers it: by the id of its mark."""

from headrace.metadata import records
from headrace.metadata.store import Cmp, MetaStore, Put


class TierMark:
    """See tier.marking.Marks."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def read(self) -> str | None:
        """Raises MetadataStoreError."""
        key = records.TIER_STORE_KEY
        found = next((kv for kv in (await self._store.load(key)).kvs if kv.key == key), None)
        return None if found is None else records.decode(records.TierStoreRecord, key, found.value).mark

    async def claim(self, mark: str) -> str:
        """Raises MetadataStoreError, OutcomeUnknown: then the same one may be claimed again."""
        key = records.TIER_STORE_KEY
        await self._store.txn([Cmp(key, 0)], [Put(key, records.encode(records.TierStoreRecord(mark)))])
        known = await self.read()
        assert known is not None  # nobody ever deletes it
        return known
