"""A store is used if it is the cluster's own, and no other is."""

import pytest

from headrace.storage.memory_files import MemoryFiles
from headrace.tier.marking import MARK_PREFIX, mark_key, recognise
from headrace.tier.memory import MemoryBucket, MemoryStore, Mishap
from headrace.tier.store import Refused, StoreUnavailable


class Remembered:
    """What the metadata store would."""

    def __init__(self) -> None:
        self.mark: str | None = None
        self.hides = 0
        """So many reads see nothing yet."""

    async def read(self) -> str | None:
        self.hides -= 1
        return None if self.hides >= 0 else self.mark

    async def claim(self, mark: str) -> str:
        self.mark = self.mark or mark
        return self.mark


def marks_in(bucket: MemoryBucket) -> list[str]:
    return [key for key in bucket.objects if key.startswith(MARK_PREFIX)]


async def recognised(bucket: MemoryBucket, marks: Remembered, own: str = "a", bits: int = 1) -> None:
    await recognise(MemoryStore(bucket, MemoryFiles()), marks, "cluster", own, bits)


async def test_the_first_use_marks_the_store_and_all_others_find_the_mark() -> None:
    bucket, marks = MemoryBucket(), Remembered()
    await recognised(bucket, marks, "a")
    await recognised(bucket, marks, "b", 2)
    assert marks.mark == "a" and marks_in(bucket) == [mark_key("cluster", "a")] == list(bucket.objects)


async def test_of_two_that_begin_at_once_one_mark_stays() -> None:
    bucket, marks = MemoryBucket(), Remembered()
    await recognised(bucket, marks, "a")
    marks.hides = 1
    await recognised(bucket, marks, "b", 2)
    assert marks_in(bucket) == [mark_key("cluster", "a")]


async def test_another_store_is_away_and_is_not_touched() -> None:
    bucket, other, marks = MemoryBucket(), MemoryBucket(), Remembered()
    await recognised(bucket, marks, "a")
    with pytest.raises(StoreUnavailable, match="not the object store that the cluster uses, or its disk"):
        await recognised(other, marks, "b")
    assert not other.objects and other.calls == {"size": 1}
    # Both begin at once, and one has another store.
    marks.hides = 1
    with pytest.raises(StoreUnavailable):
        await recognised(other, marks, "b", 2)
    assert not other.objects


async def test_an_attempt_whose_end_is_not_known_is_made_again() -> None:
    bucket, marks = MemoryBucket(), Remembered()
    bucket.mishap = lambda operation, key: Mishap(answer_lost=operation == "put" and key.startswith(MARK_PREFIX))
    with pytest.raises(StoreUnavailable):
        await recognised(bucket, marks, "a")
    bucket.mishap = lambda *_: Mishap()
    await recognised(bucket, marks, "a", 2)
    assert marks.mark == "a" and marks_in(bucket) == [mark_key("cluster", "a")]


async def test_a_store_that_is_refused_is_not_marked() -> None:
    """Whoever takes a better one then is not held to the first."""
    bucket, marks = MemoryBucket(), Remembered()
    bucket.is_create_only = False
    with pytest.raises(Refused):
        await recognised(bucket, marks, "a")
    assert marks.mark is None and not marks_in(bucket)


async def test_clusters_share_a_store() -> None:
    bucket, one, two = MemoryBucket(), Remembered(), Remembered()
    await recognised(bucket, one, "a")
    await recognise(MemoryStore(bucket, MemoryFiles()), two, "other", "b", 2)
    await recognised(bucket, one, "c", 3)
    assert len(marks_in(bucket)) == 2
