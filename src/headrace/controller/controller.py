"""The door to the cluster's metadata: what nodes and clients ask to be changed.

Every node has one. It decides while its node is the controller, and refuses with NOT_CONTROLLER otherwise.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from headrace.controller.campaign import Campaign
from headrace.controller.config_changes import AlterBrokerSettings, AlterTopicSettings, EditsOf
from headrace.controller.coverage_keys import CoverageKeys
from headrace.controller.duties import Duties, movable_from, preferred
from headrace.controller.elections import Elections
from headrace.controller.feed import Feed
from headrace.controller.fence import NotController
from headrace.controller.ids import new_uuid, text_of
from headrace.controller.internal_replicas import InternalReplicas
from headrace.controller.isr_changes import AlterPartitions, Proposal
from headrace.controller.ledger import Ledger
from headrace.controller.moves import AskStepDown, Moves
from headrace.controller.own_keys import OwnKeys
from headrace.controller.producer_ids import ProducerIds
from headrace.controller.registration import Past, Place, Registration
from headrace.controller.tier_mark import TierMark
from headrace.controller.tier_pointer import TierPointers
from headrace.controller.topic_changes import CreateTopics, DeleteTopics, GrowTopic
from headrace.controller.topics import MorePartitions, NewTopic, Refusal, name_refusal
from headrace.controller.unclean import ElectUnclean
from headrace.controller.writing import TopicPlan
from headrace.core.cluster import ClusterImage, Diff, PartitionRecord, Topic
from headrace.core.election import move_from
from headrace.errors import ErrorCode
from headrace.metadata import records
from headrace.metadata.store import (
    Cmp,
    MetadataStoreError,
    MetaStore,
    NotOffered,
    OutcomeUnknown,
    Put,
    UnreadableMetadata,
)
from headrace.runtime import Clock, Random

log = logging.getLogger(__name__)

START_S = 30.0
STOP_MS = 10_000
LEAVE_S = 30.0
SILENCE_S = 6.0
"""How long a stop waits for a store that does not answer."""
_RETRY_S = 0.05
NOT_CONTROLLER = Refusal(ErrorCode.NOT_CONTROLLER, "This node is not the controller")


class Elected(NamedTuple):
    """`error` None: it is not known."""

    topic: str
    partition: int
    error: ErrorCode | None


class Controller:
    def __init__(
        self,
        store: MetaStore,
        image: ClusterImage,
        clock: Clock,
        random: Random,
        *,
        past: Past | None = None,
        remember: Callable[[Past], None] = lambda _: None,
    ) -> None:
        """`past` and `remember`: see Registration."""
        self.image = image
        self.producer_ids = ProducerIds(store)
        self.feed = Feed(store, image)
        self.ledger = Ledger(store, self.feed)
        self.registration = Registration(
            store,
            self.feed,
            clock,
            lambda: new_uuid(random).hex(),
            past=past,
            remember=remember,
            ttl_ms=image.broker_config.broker_session_timeout_ms,
            # Whatever the settings say: a lease that ends before the next beat would end again and again.
            beat_ms=min(
                image.broker_config.broker_heartbeat_interval_ms, image.broker_config.broker_session_timeout_ms // 3
            ),
        )
        self.elections = Elections(self.ledger, clock.wall_ms)
        self.moves = Moves(self.ledger)
        self.duties = Duties(self.ledger, self.elections, self.moves, clock.wall_ms)
        self.internal_replicas = InternalReplicas(self.ledger)
        self.own_keys = OwnKeys(store, image, self.ledger)
        self.tier_pointers = TierPointers(store, image, self.ledger)
        self.tier_mark = TierMark(store)
        self.campaign = Campaign(store, self.feed, self.registration, self.ledger, self.elections)
        self.coverage_keys = CoverageKeys(image, self.ledger)
        self.coverage_reports = 0
        """Partitions of whose replicas something new was remembered, since the start."""
        self._store = store
        self._clock = clock
        self._random = random
        self._tasks: list[asyncio.Task[None]] = []
        self._is_store_silent = False
        self._end: Callable[[str], None] = lambda _: None
        self.registration.on_kept = self._guard

    def listen(self, on_change: Callable[[Diff], None]) -> None:
        """Every later change of the image is told, in the same loop turn."""
        self.feed.listeners.append(on_change)

    def ask_step_down_by(self, ask: AskStepDown) -> None:
        self.moves.ask = ask

    def on_end(self, end: Callable[[str], None]) -> None:
        """Called with one sentence when this process must end at once: another one has this node's number, or a part
        has failed without which the node would go on and never hear of anything again."""
        self.registration.on_usurped = self._end = end

    # A node's own life.

    async def start(self) -> None:
        """Loads the image and follows the store; names the cluster if nobody has. Raises MetadataStoreError."""
        deadline = asyncio.get_running_loop().time() + START_S
        while True:
            try:
                await self.feed.load()
                if not self.image.cluster_id:
                    record = records.encode(records.ClusterRecord(text_of(new_uuid(self._random))))
                    await self._store.txn([Cmp(records.CLUSTER_KEY, 0)], [Put(records.CLUSTER_KEY, record)])
                    continue
                break
            except UnreadableMetadata as failure:
                raise MetadataStoreError(f"Could not load the cluster's metadata: {failure}") from failure
            except (MetadataStoreError, OutcomeUnknown) as failure:
                if asyncio.get_running_loop().time() > deadline:
                    raise MetadataStoreError(f"Could not load the cluster's metadata: {failure}") from failure
                await asyncio.sleep(_RETRY_S)
        self.feed.listeners[:0] = [
            self.campaign.after,
            self.elections.after,
            self.duties.after,
            self.own_keys.after,
            self.coverage_keys.after,
            self.internal_replicas.after,
        ]
        self._guard(self.feed.follow())

    async def register(self, host: str, port: int, rack: str | None = None, **more: Any) -> None:
        """The address is the one that clients are told; `more` as in Place. Raises MetadataStoreError, NotRegistered.

        From here on the node is part of the cluster, and may become its controller.
        """
        deadline = asyncio.get_running_loop().time() + START_S
        while True:
            try:
                await self.registration.register(Place(host=host, port=port, rack=rack, **more))
                break
            except NotOffered as failure:
                raise MetadataStoreError(f"broker.session.timeout.ms cannot be had: {failure}") from failure
            except (MetadataStoreError, OutcomeUnknown) as failure:
                if asyncio.get_running_loop().time() > deadline:
                    raise MetadataStoreError(f"Could not register node {self.image.node_id}: {failure}") from failure
                await asyncio.sleep(_RETRY_S)
        self._spawn(self.campaign.run(), self.elections.run(), self.duties.see_off())
        self._spawn(self.duties.rebalance(), self.duties.sweep(), self.own_keys.sweep())
        self._spawn(self.internal_replicas.run(), self.coverage_keys.sweep())

    async def ready(self, timeout_s: float) -> bool:
        """Waits until no partition names this node its leader in an earlier incarnation."""
        node_id = self.image.node_id

        def is_led_by_an_earlier_one(topic: Topic, index: int) -> bool:
            record = topic.partitions[index]
            return record.leader == node_id and (node_id, self.registration.epoch) not in record.isr

        led = list(self.image.led_by(node_id))
        return await self._until_none(
            [of for of in led if is_led_by_an_earlier_one(*of)], is_led_by_an_earlier_one, timeout_s
        )

    async def _until_none(
        self, left: Iterable[tuple[Topic, int]], is_left: Callable[[Topic, int], bool], timeout_s: float
    ) -> bool:
        """Waits until none of these partitions is left, or is there any more. False when time is over."""
        waiting = set(left)
        done = asyncio.Event()

        def look(diff: Diff) -> None:
            for topic in diff.topics_deleted:
                waiting.difference_update((topic, index) for index in range(len(topic.partitions)))
            changed = waiting if diff.brokers_changed or diff.offline_changed else diff.partitions_changed
            waiting.difference_update([of for of in changed if not is_left(*of)])
            if not waiting:
                done.set()

        self.feed.listeners.append(look)
        try:
            look(Diff())
            async with asyncio.timeout(timeout_s):
                await done.wait()
        except TimeoutError:
            return False
        finally:
            self.feed.listeners.remove(look)
        return True

    def lease_valid(self) -> bool:
        return self.registration.is_valid()

    @property
    def is_controller(self) -> bool:
        return bool(self.ledger.epoch)

    async def announce_offline(self, replicas: frozenset[tuple[bytes, int]]) -> None:
        """All replicas, by topic id and index, that this process does not serve any more."""
        await self.registration.announce_offline(replicas)

    def lost_data(self) -> None:
        """A disk has failed: the log of this node is not whole any more. Raises OSError."""
        self.registration.lost_data()

    async def leave(self, timeout_s: float = LEAVE_S) -> None:
        """Before a stop: others take over what they can. Alone, there is nobody to wait for."""
        node_id = self.image.node_id
        others = [b for b in self.image.brokers.values() if b.id != node_id and not b.is_shutting_down]
        if not others or not self.registration.epoch:
            return
        self.campaign.is_over = True

        def is_movable(topic: Topic, index: int) -> bool:
            return move_from(topic.partitions[index], topic.id, index, self.image, node_id) is not None

        try:
            async with asyncio.timeout(SILENCE_S):
                await self.registration.leave()
        except TimeoutError:
            self._is_store_silent = True
            log.warning("node %d stops without a word: the metadata store does not answer", node_id)
            return
        if not await self._until_none(list(movable_from(self.image, node_id)), is_movable, timeout_s):
            log.warning("node %d stops although it still leads partitions that others could lead", node_id)

    async def stop(self, *, withdraw: bool = True) -> None:
        """Waits for what is under way and takes the registration back, as far as the store lets it."""
        self.campaign.is_over = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.ledger.drain(STOP_MS if withdraw and not self._is_store_silent else 0)
        await self.registration.close(withdraw=withdraw and not self._is_store_silent)
        self.ledger.shut()
        await self.feed.close()
        await self.producer_ids.close()

    async def abandon(self) -> None:
        """As if the process had died: nothing is written any more."""
        await self.stop(withdraw=False)

    def _spawn(self, *works: Coroutine[Any, Any, None]) -> None:
        for work in works:
            task = asyncio.create_task(work)
            self._guard(task)
            self._tasks.append(task)

    def _guard(self, task: "asyncio.Task[None]") -> None:
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            context = {"message": "a duty of the controller ended", "exception": failure, "task": task}
            task.get_loop().call_exception_handler(context)
            self._end(
                f"Node {self.image.node_id} ends, as a part of it failed, which is an error of Headrace: {failure!r}"
            )

    # What clients and nodes ask for. None means that it is not known whether it was done: the request timed out.
    # Refused with NOT_CONTROLLER, nothing was done.

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
        work = CreateTopics(self.ledger, new, ids, self._random.bits(16), validate_only)
        if not await self._settle(work.attempt, timeout_ms):
            return [NOT_CONTROLLER if outcome is None else outcome for outcome in work.settled]
        return list(work.settled)

    async def delete_topics(self, topic_ids: Sequence[bytes], *, timeout_ms: int = 0) -> list[bool | Refusal | None]:
        """For each, whether there was such a topic."""
        work = DeleteTopics(self.ledger, topic_ids)
        if not await self._settle(work.attempt, timeout_ms):
            return [NOT_CONTROLLER if outcome is None else outcome for outcome in work.settled]
        return list(work.settled)

    async def create_partitions(
        self, more: MorePartitions, *, validate_only: bool = False, timeout_ms: int = 0
    ) -> TopicPlan | Refusal | None:
        work = GrowTopic(self.ledger, more, self._random.bits(16), validate_only)
        return work.settled if await self._settle(work.attempt, timeout_ms) else NOT_CONTROLLER

    async def alter_topic_settings(
        self, name: str, edits_of: EditsOf, *, validate_only: bool = False
    ) -> Refusal | None:
        """DONE, or why not."""
        work = AlterTopicSettings(self.ledger, name, edits_of, validate_only)
        return work.settled if await self._settle(work.attempt) else NOT_CONTROLLER

    async def alter_broker_settings(
        self, broker_id: int | None, edits_of: EditsOf, *, validate_only: bool = False
    ) -> Refusal | None:
        """Of one node, or of all (`broker_id` None). DONE, or why not."""
        work = AlterBrokerSettings(self.ledger, broker_id, edits_of, validate_only)
        return work.settled if await self._settle(work.attempt) else NOT_CONTROLLER

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[Proposal]
    ) -> ErrorCode | list[PartitionRecord | ErrorCode]:
        """The error of the whole request, or for each proposal the record that holds now, or why not."""
        work = AlterPartitions(self.ledger, broker_id, broker_epoch, proposals)
        if not await self._settle(work.attempt):
            return ErrorCode.NOT_CONTROLLER
        self.coverage_reports += work.reported
        return work.error or work.settled

    async def read_partition(self, topic_id: bytes, index: int) -> PartitionRecord | None:
        """As the store holds it at this moment, which the image may not yet. Raises MetadataStoreError."""
        key = records.partition_key(topic_id, index)
        found = next((kv for kv in (await self._store.load(key)).kvs if kv.key == key), None)
        return None if found is None else records.decode(PartitionRecord, key, found.value)

    async def elect_leaders(
        self,
        kind: Literal["preferred", "unclean"],
        partitions: Sequence[tuple[str, int]] | None,
        *,
        timeout_ms: int = 0,
    ) -> list[Elected] | Refusal:
        """For each partition; with None for all of them, those that need no election are left out."""
        if not self.is_controller:
            return NOT_CONTROLLER
        named = self._all_partitions() if partitions is None else list(dict.fromkeys(partitions))
        known = [(topic, index) for name, index in named if (topic := self._topic_with(name, index)) is not None]
        try:
            if kind == "preferred":
                codes = await self.moves.move(
                    known, lambda topic, index: preferred(self.image, topic, index, self._clock.wall_ms()), timeout_ms
                )
            else:
                work = ElectUnclean(self.ledger, known, self.elections.tell)
                await self.ledger.settle(work.attempt, timeout_ms)
                codes = work.settled
        except NotController:
            return NOT_CONTROLLER
        by_name = {(topic.name, index): codes[topic.id, index] for topic, index in known}
        elected = [Elected(*name, by_name.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)) for name in named]
        if partitions is None:
            return [outcome for outcome in elected if outcome.error is not ErrorCode.ELECTION_NOT_NEEDED]
        return elected

    def _all_partitions(self) -> list[tuple[str, int]]:
        return [(topic.name, n) for topic in self.image.topics.values() for n in range(len(topic.partitions))]

    def _topic_with(self, name: str, index: int) -> Topic | None:
        topic = self.image.topics.get(name)
        return topic if topic is not None and 0 <= index < len(topic.partitions) else None

    async def _settle(self, attempt: Callable[[], Coroutine[Any, Any, bool]], timeout_ms: int = 0) -> bool:
        """False: this node is not the controller, and what is not settled was not done."""
        try:
            await self.ledger.settle(attempt, timeout_ms)
        except NotController:
            return False
        return True
