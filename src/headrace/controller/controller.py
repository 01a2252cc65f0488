"""The door to the cluster's metadata: what clients and the node itself ask to be changed."""

from collections.abc import Callable, Sequence

from headrace.controller.config_changes import AlterBrokerSettings, AlterTopicSettings, EditsOf
from headrace.controller.ids import new_uuid
from headrace.controller.ledger import Ledger
from headrace.controller.membership import NameCluster, Register, TakeLeadership, Unregister
from headrace.controller.producer_ids import ProducerIds
from headrace.controller.topic_changes import CreateTopics, DeleteTopics, GrowTopic
from headrace.controller.topics import MorePartitions, NewTopic, Refusal, name_refusal
from headrace.controller.writing import TopicPlan
from headrace.core.cluster import BrokerRecord, ClusterImage, Diff
from headrace.errors import ErrorCode
from headrace.metadata.store import MetadataStoreError, MetaStore
from headrace.runtime import Clock, Random

STOP_MS = 10_000


class Controller:
    def __init__(self, store: MetaStore, image: ClusterImage, clock: Clock, random: Random) -> None:
        self.image = image
        self.producer_ids = ProducerIds(store)
        self._ledger = Ledger(store, image, clock)
        self._random = random

    def listen(self, on_change: Callable[[Diff], None]) -> None:
        """Every later change of the image is told, in the same loop turn."""
        self._ledger.on_change = on_change

    # A node's own life. All of it raises MetadataStoreError.

    async def start(self) -> None:
        """Loads the image, cleans up after crashes, and names the cluster if nobody has."""
        named = await self._ledger.settle(NameCluster(self._ledger, new_uuid(self._random)).attempt)
        self._insist(named, "load the cluster's metadata")

    async def register(self, host: str, port: int, rack: str | None = None) -> None:
        """The address is the one that clients are told."""
        record = BrokerRecord(new_uuid(self._random).hex(), host, port, rack)
        registered = await self._ledger.settle(Register(self._ledger, self.image.node_id, record).attempt)
        self._insist(registered, f"register node {self.image.node_id}")

    async def take_leadership(self, broker_id: int) -> None:
        """After registration, before the first append: leads anew what this broker led before."""
        taken = await self._ledger.settle(TakeLeadership(self._ledger, broker_id).attempt)
        self._insist(taken, f"take the leaderships of node {broker_id}")

    async def stop(self) -> None:
        """Waits for what is under way and takes the registration back, as far as the store lets it."""
        await self._ledger.settle(Unregister(self._ledger, self.image.node_id).attempt, STOP_MS)
        await self._ledger.drain(STOP_MS)
        await self.producer_ids.close()

    def _insist(self, settled: bool, what: str) -> None:
        if not settled:
            raise MetadataStoreError(
                f"Could not {what}: {self._ledger.failure or 'the metadata store does not answer'}"
            )

    # What clients ask for. None means that it is not known whether it was done: the request timed out.

    def name_error(self, name: str) -> ErrorCode:
        refusal = name_refusal(name)
        return ErrorCode.NONE if refusal is None else refusal.code

    async def auto_create(self, name: str) -> ErrorCode:
        """A topic with the broker's defaults; no error if somebody else was faster."""
        (created,) = await self.create_topics([NewTopic(name)])
        if created is None:
            return ErrorCode.REQUEST_TIMED_OUT
        if isinstance(created, Refusal) and created.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return created.code
        return ErrorCode.NONE

    async def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int = 0
    ) -> list[TopicPlan | Refusal | None]:
        """For each, what was (or would be) created. The names are distinct."""
        ids = [new_uuid(self._random) for _ in new]
        work = CreateTopics(self._ledger, new, ids, self._random.bits(16), validate_only)
        await self._ledger.settle(work.attempt, timeout_ms)
        return list(work.settled)

    async def delete_topics(self, topic_ids: Sequence[bytes], *, timeout_ms: int = 0) -> list[bool | None]:
        """For each, whether there was such a topic."""
        work = DeleteTopics(self._ledger, topic_ids)
        await self._ledger.settle(work.attempt, timeout_ms)
        return list(work.settled)

    async def create_partitions(
        self, more: MorePartitions, *, validate_only: bool = False, timeout_ms: int = 0
    ) -> TopicPlan | Refusal | None:
        work = GrowTopic(self._ledger, more, self._random.bits(16), validate_only)
        await self._ledger.settle(work.attempt, timeout_ms)
        return work.settled

    async def alter_topic_settings(
        self, name: str, edits_of: EditsOf, *, validate_only: bool = False
    ) -> Refusal | None:
        """DONE, or why not."""
        work = AlterTopicSettings(self._ledger, name, edits_of, validate_only)
        await self._ledger.settle(work.attempt)
        return work.settled

    async def alter_broker_settings(
        self, broker_id: int | None, edits_of: EditsOf, *, validate_only: bool = False
    ) -> Refusal | None:
        """Of one node, or of all (`broker_id` None). DONE, or why not."""
        work = AlterBrokerSettings(self._ledger, broker_id, edits_of, validate_only)
        await self._ledger.settle(work.attempt)
        return work.settled
