"""A node's registration, and the leaderships that it takes with it."""

from collections.abc import Iterator

from headrace.controller import writing
from headrace.controller.ids import text_of
from headrace.controller.ledger import Ledger
from headrace.core.cluster import (
    BrokerGone,
    BrokerPut,
    BrokerRecord,
    ClusterImage,
    ClusterNamed,
    IsrMember,
    PartitionRecord,
    RegisteredBroker,
    Topic,
)
from headrace.metadata import records
from headrace.metadata.store import Cmp, Put


class NameCluster:
    """The id that the cluster keeps for ever: whoever comes first writes it."""

    def __init__(self, ledger: Ledger, cluster_id: bytes) -> None:
        self._ledger = ledger
        self._id = text_of(cluster_id)

    async def attempt(self) -> bool:
        if self._ledger.image.cluster_id:
            return True
        record = records.encode(records.ClusterRecord(self._id))
        ok, _ = await self._ledger.store.txn([Cmp(records.CLUSTER_KEY, 0)], [Put(records.CLUSTER_KEY, record)])
        if ok:
            self._ledger.apply([ClusterNamed(self._id)])
        return ok


class Register:
    """A new registration, whose create revision is the broker's epoch. The one of an earlier run is deleted first."""

    def __init__(self, ledger: Ledger, broker_id: int, record: BrokerRecord) -> None:
        self._ledger = ledger
        self._id = broker_id
        self._record = record

    async def attempt(self) -> bool:
        store, key = self._ledger.store, records.broker_key(self._id)
        for kv in (await store.load(key)).kvs:
            # The prefix finds /b/10 for node 1 too. Our own record, from an attempt of unknown outcome, is replaced.
            if kv.key == key and not (await store.txn([Cmp(key, kv.mod_rev)], deletes=[key])).ok:
                return False
        ok, epoch = await store.txn([Cmp(key, 0)], [Put(key, records.encode(self._record))])
        if ok:
            record = self._record
            broker = RegisteredBroker(self._id, epoch, record.host, record.port, record.rack)
            self._ledger.apply([BrokerPut(broker)])
        return ok


class Unregister:
    def __init__(self, ledger: Ledger, broker_id: int) -> None:
        self._ledger = ledger
        self._id = broker_id

    async def attempt(self) -> bool:
        broker = self._ledger.image.brokers.get(self._id)
        if broker is not None:
            # If the compare fails, another incarnation has registered: its key is not ours to delete.
            key = records.broker_key(self._id)
            await self._ledger.store.txn([Cmp(key, broker.epoch, "create")], deletes=[key])
            self._ledger.apply([BrokerGone(self._id)])
        return True


class TakeLeadership:
    """A new leader epoch for every partition that the node leads: each incarnation appends under its own.

    A leader that came back without its last records would else go on in the same epoch, and nobody could tell the
    records that it lost from those that it wrote instead.
    """

    def __init__(self, ledger: Ledger, broker_id: int) -> None:
        self._ledger = ledger
        self._id = broker_id

    async def attempt(self) -> bool:
        changed = list(led_by_an_earlier_incarnation(self._ledger.image, self._id))
        changes = await writing.write_partitions(self._ledger.store, changed)
        if changes is None:
            return False
        self._ledger.apply(changes)
        return True


def led_by_an_earlier_incarnation(image: ClusterImage, broker_id: int) -> Iterator[tuple[Topic, int, PartitionRecord]]:
    """Partitions that the broker leads by an ISR entry of another registration, with the record that ends that."""
    me = IsrMember(broker_id, image.brokers[broker_id].epoch)
    renewed: dict[PartitionRecord, PartitionRecord] = {}  # few records are distinct, however many partitions there are
    for topic, index in image.led_by(broker_id):
        record = topic.partitions[index]
        if me in record.isr:
            continue
        if record not in renewed:
            renewed[record] = PartitionRecord(
                replicas=record.replicas,
                isr=tuple(me if member.broker_id == broker_id else member for member in record.isr),
                leader=broker_id,
                leader_epoch=record.leader_epoch + 1,
                partition_epoch=record.partition_epoch + 1,
                adding=record.adding,
                removing=record.removing,
                recovering=record.recovering,
            )
        yield topic, index, renewed[record]
