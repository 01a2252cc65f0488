"""The controller on a store in memory: what is asked for happens, is told, and is there for the next node."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from headrace.controller import feed
from headrace.controller.config_changes import DONE
from headrace.controller.configs import Edit, EditKind
from headrace.controller.controller import NOT_CONTROLLER, Controller
from headrace.controller.topics import MorePartitions, NewTopic, Refusal
from headrace.controller.writing import TopicPlan
from headrace.core.cluster import ClusterImage, Diff
from headrace.errors import ErrorCode
from headrace.metadata import records
from headrace.metadata.memory import MemoryData, MemoryStore
from headrace.metadata.store import Cmp, Event, MetadataStoreError, Put, Revision
from headrace.system import SystemClock
from tests.controller.world import SeededRandom, check_image, check_store, started


async def create(controller: Controller, name: str, partitions: int = 1, **settings: str) -> TopicPlan:
    dotted: dict[str, str | None] = {key.replace("_", "."): text for key, text in settings.items()}
    (plan,) = await controller.create_topics([NewTopic(name, partitions, settings=dotted)])
    assert isinstance(plan, TopicPlan)
    return plan


async def test_a_cluster_keeps_the_id_that_its_first_node_gave_it() -> None:
    data = MemoryData()
    first, second = await started(MemoryStore(data)), await started(MemoryStore(data), node_id=2)
    assert first.image.cluster_id == second.image.cluster_id
    assert len(first.image.cluster_id) == 22


@pytest.mark.parametrize("partitions", [1, 120, 121, 500])
async def test_a_topic_of_any_size_is_created_grown_and_deleted_whole(partitions: int) -> None:
    store = MemoryStore()
    told: list[Diff] = []
    controller = await started(store, on_change=told.append)
    plan = await create(controller, "t", partitions, retention_ms="5")
    assert told == [Diff(topics_created=[controller.image.topics["t"]])]
    assert controller.image.topics["t"].config.retention_ms == 5
    assert check_store(store.data) == {"t": partitions}
    check_image(controller.image, store.data)

    assert isinstance(await controller.create_partitions(MorePartitions("t", partitions + 130)), TopicPlan)
    assert len(told[-1].partitions_created) == 130
    assert check_store(store.data) == {"t": partitions + 130}
    check_image(controller.image, store.data)

    topic = controller.image.topics["t"]
    assert topic.id == plan.topic_id
    assert await controller.delete_topics([topic.id]) == [True]
    assert told[-1] == Diff(topics_deleted=[topic])
    assert check_store(store.data) == {}
    check_image(controller.image, store.data)


async def test_a_topic_is_told_in_the_turn_in_which_its_creation_is_known() -> None:
    told: list[str] = []
    controller = await started(MemoryStore(), on_change=lambda diff: told.extend(t.name for t in diff.topics_created))
    await create(controller, "t")
    assert told == ["t"]


async def test_every_topic_of_a_request_is_judged_by_itself() -> None:
    store = MemoryStore()
    controller = await started(store)
    outcomes = await controller.create_topics([NewTopic("a"), NewTopic("b", 0), NewTopic("c"), NewTopic("d/")])
    assert [outcome.code if isinstance(outcome, Refusal) else None for outcome in outcomes] == [
        None,
        ErrorCode.INVALID_PARTITIONS,
        None,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert check_store(store.data) == {"a": 1, "c": 1}


async def test_of_many_that_create_one_topic_one_does_and_the_others_hear_that_it_exists() -> None:
    controller = await started(MemoryStore())
    outcomes = await asyncio.gather(*(controller.create_topics([NewTopic("t")]) for _ in range(20)))
    refusals = [outcome for (outcome,) in outcomes if isinstance(outcome, Refusal)]
    assert len(refusals) == 19
    assert {refusal.code for refusal in refusals} == {ErrorCode.TOPIC_ALREADY_EXISTS}


class TellsAllAtOnce(MemoryStore):
    """As a store does that reads many revisions with one question."""

    async def watch(self, prefix: bytes, after_rev: int) -> AsyncGenerator[Revision, None]:
        del prefix
        for rev in range(after_rev + 1, after_rev + 31):
            yield Revision(rev, (Event(b"/elsewhere", b"", rev, rev),))
        await asyncio.Event().wait()


async def test_much_news_at_once_is_taken_in_over_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the beats of a node would wait for all of it, and its lease would end."""
    monkeypatch.setattr(feed, "EVENTS_PER_TURN", 5)
    image = ClusterImage(1, {})
    fed = feed.Feed(TellsAllAtOnce(), image)
    await fed.load()
    fed.follow()
    seen = []
    while image.rev < 30:
        seen.append(image.rev)
        await asyncio.sleep(0)
    assert {5, 10, 15, 20, 25} <= set(seen)
    await fed.close()


async def test_a_node_that_is_not_the_controller_refuses_and_sees_what_the_controller_does() -> None:
    data = MemoryData()
    one, two = await started(MemoryStore(data)), await started(MemoryStore(data), node_id=2)
    assert (one.is_controller, two.is_controller) == (True, False)
    assert two.image.controller is not None and two.image.controller.id == 1
    plan = await create(one, "t", 2)
    await two.feed.reached(one.image.rev)
    assert two.image.topics["t"].id == plan.topic_id
    edits = [Edit("retention.ms", EditKind.SET, "9")]
    outcomes = [
        *await two.create_topics([NewTopic("u")]),
        *await two.delete_topics([plan.topic_id]),
        await two.create_partitions(MorePartitions("t", 9)),
        await two.alter_topic_settings("t", lambda _: edits),
        await two.alter_broker_settings(None, lambda _: edits),
        await two.elect_leaders("preferred", None),
    ]
    assert outcomes == [NOT_CONTROLLER] * 6
    assert await two.alter_partitions(2, two.registration.epoch, []) is ErrorCode.NOT_CONTROLLER
    check_image(two.image, data)


async def test_auto_creation_takes_the_brokers_numbers_and_is_no_error_the_second_time() -> None:
    controller = await started(MemoryStore(), settings={"num.partitions": "3"})
    assert await controller.auto_create("t") is ErrorCode.NONE
    assert await controller.auto_create("t") is ErrorCode.NONE
    assert await controller.auto_create("a b") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(controller.image.topics["t"].partitions) == 3


async def test_validation_alone_writes_nothing() -> None:
    store = MemoryStore()
    controller = await started(store)
    await create(controller, "t")
    before = store.data.rev
    (plan,) = await controller.create_topics([NewTopic("u", 5)], validate_only=True)
    assert isinstance(plan, TopicPlan)
    assert len(plan.partitions) == 5
    assert isinstance(await controller.create_partitions(MorePartitions("t", 9), validate_only=True), TopicPlan)
    edits = [Edit("retention.ms", EditKind.SET, "9")]
    assert await controller.alter_topic_settings("t", lambda _: edits, validate_only=True) == DONE
    edits = [Edit("max.connections", EditKind.SET, "9")]
    assert await controller.alter_broker_settings(None, lambda _: edits, validate_only=True) == DONE
    assert store.data.rev == before
    check_image(controller.image, store.data)


async def test_a_topic_that_is_not_there_cannot_be_deleted_grown_or_configured() -> None:
    controller = await started(MemoryStore())
    assert await controller.delete_topics([bytes(16)]) == [False]
    for outcome in (
        await controller.create_partitions(MorePartitions("t", 9)),
        await controller.alter_topic_settings("t", lambda _: []),
    ):
        assert isinstance(outcome, Refusal)
        assert outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_settings_of_a_topic_are_stored_told_and_removed() -> None:
    store = MemoryStore()
    told: list[Diff] = []
    controller = await started(store, on_change=told.append)
    await create(controller, "t")
    topic = controller.image.topics["t"]
    edits = [Edit("retention.ms", EditKind.SET, "9")]
    assert await controller.alter_topic_settings("t", lambda _: edits) == DONE
    assert told[-1] == Diff(topics_configured=[topic])
    assert topic.config.retention_ms == 9
    check_image(controller.image, store.data)
    changes = len(told)
    assert await controller.alter_topic_settings("t", lambda _: edits) == DONE
    assert len(told) == changes  # nothing new to write
    edits = [Edit("retention.ms", EditKind.DELETE, None)]
    assert await controller.alter_topic_settings("t", lambda _: edits) == DONE
    assert store.data.load(records.TOPIC_SETTINGS).kvs == []
    check_image(controller.image, store.data)


async def test_settings_of_brokers_are_in_force_at_once_and_at_the_next_start() -> None:
    store = MemoryStore()
    told: list[Diff] = []
    controller = await started(store, settings={"max.connections": "7"}, on_change=told.append)
    edits = [Edit("max.connections", EditKind.SET, "8")]
    assert await controller.alter_broker_settings(None, lambda _: edits) == DONE
    assert told[-1].broker_configured
    assert controller.image.broker_config.max_connections == 8
    restarted = await started(MemoryStore(store.data), settings={"max.connections": "7"})
    assert restarted.image.broker_config.max_connections == 8


async def test_settings_of_an_unregistered_broker_are_refused() -> None:
    controller = await started(MemoryStore())
    refusal = await controller.alter_broker_settings(9, lambda _: [])
    assert refusal is not None
    assert refusal.code is ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_concurrent_edits_of_one_topic_all_count() -> None:
    data = MemoryData()
    one = await started(MemoryStore(data))
    await create(one, "t")
    names = ["retention.ms", "segment.bytes", "flush.ms", "flush.messages", "segment.ms", "segment.jitter.ms"]

    def setting(name: str) -> list[Edit]:
        return [Edit(name, EditKind.SET, "77")]

    await asyncio.gather(
        *(
            one.alter_topic_settings("t", lambda _, name=name: setting(name))  # type: ignore[misc]  # a default argument binds the loop's name
            for name in names
        )
    )
    stored = records.decode(records.OverridesRecord, b"", data.load(records.topic_settings_key("t")).kvs[0].value)
    assert stored.settings == dict.fromkeys(names, "77")


async def test_a_store_that_is_down_is_waited_for_as_long_as_the_request_says() -> None:
    store = MemoryStore()
    controller = await started(store)
    await create(controller, "there")
    store.unavailable = True
    assert await controller.create_topics([NewTopic("t")], timeout_ms=100) == [None]
    assert await controller.delete_topics([controller.image.topics["there"].id], timeout_ms=100) == [None]
    assert await controller.create_partitions(MorePartitions("there", 2), timeout_ms=100) is None
    store.unavailable = False
    await create(controller, "t")
    assert check_store(store.data) == {"there": 1, "t": 1}
    check_image(controller.image, store.data)


async def test_a_store_that_comes_back_in_time_is_no_error() -> None:
    store = MemoryStore()
    controller = await started(store)
    store.unavailable = True
    creation = asyncio.create_task(create(controller, "t"))
    await asyncio.sleep(0.01)
    assert not creation.done()
    store.unavailable = False
    await creation
    assert check_store(store.data) == {"t": 1}


async def test_a_newer_programs_metadata_stops_the_start_with_one_sentence() -> None:
    store = MemoryStore()
    await store.txn([Cmp(b"/cluster", 0)], [Put(b"/cluster", b'{"v":3,"name":"x"}')])
    controller = Controller(store, ClusterImage(1, {}), SystemClock(), SeededRandom())
    with pytest.raises(MetadataStoreError) as refused:
        await controller.start()
    assert str(refused.value) == (
        "Could not load the cluster's metadata: Metadata key /cluster has version 3; this program reads up to version 1"
    )


async def test_a_missing_partition_stops_the_start_with_one_sentence() -> None:
    store = MemoryStore()
    plan = await create(await started(store), "t", 3)
    del store.data.kvs[records.partition_key(plan.topic_id, 1)]
    controller = Controller(MemoryStore(store.data), ClusterImage(1, {}), SystemClock(), SeededRandom())
    with pytest.raises(MetadataStoreError, match="lacks the record of partition t-1"):
        await controller.start()
