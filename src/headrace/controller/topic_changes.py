"""Requests that create, delete and grow topics, each through as many attempts as it takes."""

from collections.abc import Sequence

from headrace.controller import writing
from headrace.controller.ledger import Ledger
from headrace.controller.pacing import Pace
from headrace.controller.tier_warnings import warn_of_topic
from headrace.controller.topics import MorePartitions, NewTopic, Planned, Refusal, plan_creation, plan_growth
from headrace.controller.writing import TopicPlan
from headrace.core.cluster import Topic
from headrace.errors import ErrorCode

PLANNING_US = 50
"""Of a topic, beside one for each partition."""


class CreateTopics:
    """`settled` says for each topic what was (or would be) created, or why not; None is not known."""

    def __init__(
        self, ledger: Ledger, new: Sequence[NewTopic], ids: Sequence[bytes], start: int, validate_only: bool
    ) -> None:
        self.settled: list[TopicPlan | Refusal | None] = [None] * len(new)
        self._ledger = ledger
        self._new = new
        self._ids = ids
        self._start = start
        self._validate_only = validate_only

    async def attempt(self) -> bool:
        image = self._ledger.image
        plans: list[tuple[int, TopicPlan]] = []
        planned, pace = Planned(), Pace()
        for n, (new, topic_id) in enumerate(zip(self._new, self._ids, strict=True)):
            if self.settled[n] is not None:
                continue
            created = image.topics_by_id.get(topic_id)
            if created is not None:  # an earlier attempt, whose outcome was not known, had succeeded
                self.settled[n] = TopicPlan(created.name, created.id, created.partitions, overrides=created.overrides)
                continue
            plan = plan_creation(image, new, topic_id, self._start + n, planned)
            if isinstance(plan, Refusal):
                self.settled[n] = plan
                await pace.spend(PLANNING_US)
                continue
            planned.add(plan)
            if self._validate_only:
                self.settled[n] = plan
            else:
                plans.append((n, plan))
            await pace.spend(PLANNING_US + len(plan.partitions))
        await writing.in_waves(self._create(n, plan) for n, plan in plans)
        return None not in self.settled

    async def _create(self, n: int, plan: TopicPlan) -> None:
        if await writing.write_topic(self._ledger.store, plan):
            self.settled[n] = plan
            warn_of_topic(self._ledger.image, plan.name, plan.overrides)


class DeleteTopics:
    """`settled` says for each topic whether it was there to delete; None is not known."""

    def __init__(self, ledger: Ledger, topic_ids: Sequence[bytes]) -> None:
        self.settled: list[bool | None] = [None] * len(topic_ids)
        self._ledger = ledger
        self._topic_ids = topic_ids
        self._tried: set[bytes] = set()

    async def attempt(self) -> bool:
        doomed: list[tuple[int, Topic]] = []
        for n, topic_id in enumerate(self._topic_ids):
            topic = self._ledger.image.topics_by_id.get(topic_id)
            if self.settled[n] is not None:
                continue
            if topic is None:  # if we tried before, it is gone by our own write, whose outcome was not known
                self.settled[n] = topic_id in self._tried
            else:
                doomed.append((n, topic))
        await writing.in_waves(self._delete(n, topic) for n, topic in doomed)
        return None not in self.settled

    async def _delete(self, n: int, topic: Topic) -> None:
        self._tried.add(topic.id)
        if await writing.delete_topic(self._ledger.store, topic):
            self.settled[n] = True


class GrowTopic:
    """`settled` says what was (or would be) added, or why not; None is not known."""

    def __init__(self, ledger: Ledger, more: MorePartitions, start: int, validate_only: bool) -> None:
        self.settled: TopicPlan | Refusal | None = None
        self._ledger = ledger
        self._more = more
        self._start = start
        self._validate_only = validate_only
        self._tried: TopicPlan | None = None

    async def attempt(self) -> bool:
        self.settled = await self._grow()
        return self.settled is not None

    async def _grow(self) -> TopicPlan | Refusal | None:
        topic = self._ledger.image.topics.get(self._more.name)
        if topic is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {self._more.name!r} does not exist")
        tried = self._tried
        if tried is not None and tried.topic_id == topic.id and len(topic.partitions) == tried.last:
            return tried  # an earlier attempt, whose outcome was not known, had succeeded
        plan = plan_growth(self._ledger.image, topic, self._more, self._start)
        if self._validate_only or isinstance(plan, Refusal):
            return plan
        self._tried = plan
        return plan if await writing.write_topic(self._ledger.store, plan) else None
