"""Who decides: the node that created the controller's key, under the lease of its own registration.

The feed says who it is. An office that this incarnation holds is taken up however it came about, also by a write whose
outcome was not known.
"""

import asyncio
import logging

from headrace.controller.elections import Elections
from headrace.controller.feed import NOTHING, Feed
from headrace.controller.ledger import Ledger
from headrace.controller.registration import Registration
from headrace.core.cluster import Diff
from headrace.metadata import records
from headrace.metadata.store import Cmp, MetadataStoreError, MetaStore, OutcomeUnknown, Put

log = logging.getLogger(__name__)

RETRY_S = 0.2


class Campaign:
    def __init__(
        self, store: MetaStore, feed: Feed, registration: Registration, ledger: Ledger, elections: Elections
    ) -> None:
        self.is_over = False
        """This node does not want the office any more."""
        self._store = store
        self._feed = feed
        self._registration = registration
        self._ledger = ledger
        self._elections = elections
        self._wake = asyncio.Event()

    def after(self, diff: Diff) -> None:
        self.look()
        # An empty one: this node's registration is there, which alone makes it a candidate.
        if diff.controller_changed or self._feed.image.node_id in diff.brokers_changed or diff == NOTHING:
            self._wake.set()

    def look(self) -> None:
        """Takes the office up, or lays it down, as the image says."""
        office, registration = self._feed.deltas.office, self._registration
        held = office is not None and registration.epoch and office.record.incarnation == registration.incarnation
        if office is None or not held:
            if self._ledger.epoch:
                log.info("node %d is no longer the controller", self._feed.image.node_id)
                self._ledger.shut()
        elif office.epoch != self._ledger.epoch and registration.lease is not None:
            log.info("node %d is the controller, with epoch %d", self._feed.image.node_id, office.epoch)
            self._ledger.open(office, registration.lease.id)
            self._elections.all()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            if self._feed.image.controller is None and self._registration.epoch and not self.is_over:
                await self._stand()
                await self._wait(RETRY_S)
            else:
                await self._wait(None)

    async def _wait(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _stand(self) -> None:
        registration, node_id = self._registration, self._feed.image.node_id
        assert registration.lease is not None
        record = records.ControllerRecord(node_id, registration.incarnation)
        when = [Cmp(records.CONTROLLER_KEY, 0), Cmp(records.broker_key(node_id), registration.epoch, "create")]
        put = Put(records.CONTROLLER_KEY, records.encode(record), registration.lease.id)
        try:
            ok, rev = await self._store.txn(when, [put])
        except (MetadataStoreError, OutcomeUnknown) as failure:
            log.warning("node %d could not stand for controller: %s", node_id, failure)
            return
        if ok:
            await self._feed.reached(rev)
