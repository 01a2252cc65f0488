"""The store as the controller's decisions see it: every write compares the controller's key.

A write whose outcome is not known may be applied at any later time, and a key that must be absent may be absent again
by then: created by a second attempt, deleted since. Once the controller's key has moved, a write is either applied
already or never will be. Whoever is no longer the controller can write nothing at all.
"""

from collections.abc import Sequence

from headrace.controller.loading import Office
from headrace.metadata import records
from headrace.metadata.store import Cmp, MetaStore, Put, TxnResult

_NOBODYS = -1


class NotController(Exception):
    """This node does not hold the office, or no longer."""


class FencedStore:
    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._lease_id = 0
        self._rev = _NOBODYS  # no key has it: nothing can be written before the first office
        self.epoch = 0
        """Of the office that this node holds; 0 when it holds none."""
        self.written_rev = 0
        """The last revision that was written here."""

    def take(self, office: Office, lease_id: int) -> None:
        self.epoch, self._rev, self._lease_id = office.epoch, office.mod_rev, lease_id

    def drop(self) -> None:
        self.epoch, self._rev = 0, _NOBODYS

    async def move(self) -> None:
        """When it returns, what was written before is settled. Raises OutcomeUnknown; then it is not."""
        key = records.CONTROLLER_KEY
        moved = False
        while not moved:
            epoch = self.epoch
            known = [kv for kv in (await self._store.load(key)).kvs if kv.key == key]
            if not epoch or self.epoch != epoch or not known or known[0].create_rev != epoch:
                raise NotController
            held = records.decode(records.ControllerRecord, key, known[0].value)
            value = records.encode(records.ControllerRecord(held.broker_id, held.incarnation, held.moved + 1))
            moved, rev = await self._store.txn([Cmp(key, known[0].mod_rev)], [Put(key, value, self._lease_id)])
        if self.epoch != epoch:
            raise NotController
        self._rev = self.written_rev = rev

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
        result = await self._store.txn([*when, Cmp(records.CONTROLLER_KEY, self._rev)], puts, deletes)
        if result.ok:
            self.written_rev = max(self.written_rev, result.rev)
        return result
