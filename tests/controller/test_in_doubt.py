"""When the store does not say whether it wrote: nothing is told as done or refused that is not so, now and later."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.configs import Edit, EditKind
from headrace.controller.topics import MorePartitions, NewTopic, Refusal
from headrace.errors import ErrorCode
from headrace.metadata.memory import Fault, MemoryStore
from tests.controller.world import check_image, check_store, started

faults = st.lists(st.sampled_from([None, None, *Fault]), max_size=6)
steps = st.lists(
    st.tuples(
        st.sampled_from(["create", "create large", "delete", "grow", "grow large", "configure"]),
        st.sampled_from(["a", "b"]),
        faults,
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(steps)
def test_whatever_the_store_hides_answers_are_true(script: list[tuple[str, str, list[Fault | None], bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.controller.ledger._RETRY_S", 0)
        asyncio.run(run_script(script))


async def run_script(script: list[tuple[str, str, list[Fault | None], bool]]) -> None:
    store = MemoryStore()
    controller = await started(store)
    expected: dict[str, tuple[int, str | None]] = {}  # partitions and retention.ms of every topic
    for action, name, planned, late_now in script:
        store.faults.extend(planned)
        topic = controller.image.topics.get(name)
        count, retention = expected.get(name, (0, None))
        if action.startswith("create"):
            size = 250 if action == "create large" else 2
            (outcome,) = await controller.create_topics([NewTopic(name, size, settings={"retention.ms": "5"})])
            assert is_done(outcome) == (name not in expected)
            expected.setdefault(name, (size, "5"))
        elif action.startswith("grow"):
            size = count + (250 if action == "grow large" else 1)
            outcome = await controller.create_partitions(MorePartitions(name, size))
            assert is_done(outcome) == (name in expected)
            if name in expected:
                expected[name] = (size, retention)
        elif action == "configure":
            edits = [Edit("retention.ms", EditKind.SET, str(count + 100))]
            outcome = await controller.alter_topic_settings(name, lambda _, edits=edits: edits)  # type: ignore[misc]  # a default argument binds the loop's name
            assert is_done(outcome) == (name in expected)
            if name in expected:
                expected[name] = (count, str(count + 100))
        else:
            assert (topic is not None) == (name in expected)
            if topic is not None:
                assert await controller.delete_topics([topic.id]) == [True]
                del expected[name]
        store.faults.clear()
        if late_now:
            store.apply_late()
        seen = {
            topic.name: (len(topic.partitions), topic.overrides.get("retention.ms"))
            for topic in controller.image.topics.values()
        }
        assert seen == expected
    store.apply_late()
    next_node = await started(MemoryStore(store.data))
    assert check_store(store.data) == {name: count for name, (count, _) in expected.items()}
    check_image(next_node.image, store.data)


def is_done(outcome: Any) -> bool:
    """What was refused was refused for good; nothing in these scripts times out."""
    assert outcome is not None
    return not isinstance(outcome, Refusal) or outcome.code is ErrorCode.NONE


async def test_a_creation_that_is_never_answered_is_not_known() -> None:
    store = MemoryStore()
    controller = await started(store)
    store.faults.extend([Fault.UNKNOWN_LATE] * 100)
    assert await controller.create_topics([NewTopic("t")], timeout_ms=150) == [None]
    store.faults.clear()
    store.apply_late()
    assert check_store(store.data) == {"t": 1}  # it has happened after all
    (outcome,) = await controller.create_topics([NewTopic("t")])
    assert isinstance(outcome, Refusal)
    assert outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_late_write_cannot_bring_back_what_was_deleted_since() -> None:
    store = MemoryStore()
    controller = await started(store)
    store.faults.append(Fault.UNKNOWN_LATE)
    await controller.create_topics([NewTopic("t")])
    await controller.delete_topics([controller.image.topics["t"].id])
    assert store.apply_late() == [False]
    assert check_store(store.data) == {}


async def test_a_late_write_cannot_mark_a_topic_that_was_created_since_as_unfinished() -> None:
    store = MemoryStore()
    controller = await started(store)
    store.faults.append(Fault.UNKNOWN_LATE)
    await controller.create_topics([NewTopic("t", 250)])
    assert store.apply_late() == [False]
    await started(MemoryStore(store.data))
    assert check_store(store.data) == {"t": 250}


async def test_a_late_write_of_a_dead_process_is_fenced_by_the_next_start() -> None:
    store = MemoryStore()
    controller = await started(store)
    store.faults.extend([Fault.UNKNOWN_LATE] * 100)
    assert await controller.create_topics([NewTopic("t")], timeout_ms=50) == [None]
    await started(MemoryStore(store.data))
    assert True not in store.apply_late()
