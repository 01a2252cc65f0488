"""A process that dies between any two writes leaves a topic whole or not there, and nothing else."""

from collections.abc import Awaitable, Callable

import pytest

from headrace.controller.configs import Edit, EditKind
from headrace.controller.controller import NOT_CONTROLLER, Controller
from headrace.controller.topics import MorePartitions, NewTopic
from headrace.metadata.memory import MemoryData, MemoryStore
from tests.controller.world import Died, MortalStore, check_image, check_store, started

EXISTING, GROWN, CREATED = 260, 520, 250


async def create(controller: Controller) -> None:
    await controller.create_topics([NewTopic("new", CREATED, settings={"retention.ms": "5"})])


async def grow(controller: Controller) -> None:
    await controller.create_partitions(MorePartitions("old", GROWN))


async def delete(controller: Controller) -> None:
    await controller.delete_topics([controller.image.topics["old"].id])


async def configure(controller: Controller) -> None:
    await controller.alter_topic_settings("old", lambda _: [Edit("retention.ms", EditKind.SET, "9")])


@pytest.mark.parametrize("dies_after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (create, {"old": EXISTING}, {"old": EXISTING, "new": CREATED}),
        (grow, {"old": EXISTING}, {"old": GROWN}),
        (delete, {"old": EXISTING}, {}),
        (configure, {"old": EXISTING}, {"old": EXISTING}),
    ],
)
async def test_dying_at_any_write(
    change: Callable[[Controller], Awaitable[None]],
    before: dict[str, int],
    after: dict[str, int],
    dies_after: bool,
) -> None:
    seen: list[dict[str, int]] = []
    for lives in range(100):
        store = MortalStore(MemoryData(), lives=100, dies_after=dies_after)
        controller = await started(store)
        await controller.create_topics([NewTopic("old", EXISTING, settings={"segment.bytes": "99"})])
        store.lives = lives
        try:
            await change(controller)
        except Died:
            survived = False
        else:
            survived = True
        next_node = await started(MemoryStore(store.data))
        seen.append(check_store(store.data))
        check_image(next_node.image, store.data)
        if survived:
            break
    assert seen[-1] == after
    assert all(state in (before, after) for state in seen)
    assert seen == sorted(seen, key=lambda state: state == after)  # once it is done, it stays done


async def test_who_is_slow_cannot_go_on_after_somebody_cleaned_up() -> None:
    """A creator pauses before its last write; another node starts and takes its unfinished work for a dead one's."""
    data = MemoryData()
    controller = await started(MortalStore(data, lives=100))
    store = MortalStore(data, lives=100)
    controller = await started(store)
    store.lives = 4  # the mark, three batches; not the topic's own key
    with pytest.raises(Died):
        await create(controller)
    await started(MemoryStore(data))
    assert check_store(data) == {}
    # Now it wakes up, and is not the controller any more.
    store.lives = 100
    assert await controller.create_topics([NewTopic("other")]) == [NOT_CONTROLLER]
    assert check_store(data) == {}
