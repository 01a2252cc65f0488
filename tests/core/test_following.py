"""The fetcher's partitions, state by state: what each answer does to its partition, and to no other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.fetching import Verdict
from headrace.core.following import (
    Append,
    Delayed,
    Diverged,
    Fail,
    FailedPartitions,
    FetcherPartitions,
    Ignored,
    MovedToTier,
    OutOfRange,
    Phase,
    Position,
    Step,
)
from headrace.errors import ErrorCode
from headrace.wire.messages.fetch import EpochEndOffset, PartitionData

AT = Position(leader_epoch=3, fetch_offset=10, last_fetched_epoch=2, log_start=0)


def fetcher(*keys: str) -> FetcherPartitions[str]:
    """Its first request is on the way."""
    partitions: FetcherPartitions[str] = FetcherPartitions(FailedPartitions())
    for key in keys or ("a", "b"):
        assert partitions.add(key, AT)
    ask(partitions)
    return partitions


def ask(partitions: FetcherPartitions[str], now_ms: int = 0) -> dict[str, Position]:
    request = partitions.next(now_ms)
    listed = dict(request.listed)
    verdict = partitions.session.answered(0, 7, list(listed))
    assert verdict is Verdict.USE
    return listed


def part(
    error: int = 0, *, hw: int = 12, diverging: tuple[int, int] | None = None, records: bytes = b""
) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=hw,
        log_start_offset=1,
        diverging_epoch=None if diverging is None else EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        records=records,
    )


def failed_set(partitions: FetcherPartitions[str]) -> FailedPartitions[str]:
    return partitions._failed


def test_good_records_are_appended_and_the_next_request_lists_the_new_offset_only() -> None:
    partitions = fetcher()
    assert partitions.judge("a", part(records=b"xy"), 0) == Append(b"xy", 12, 1)
    assert partitions.lag("a") == 2
    partitions.appended("a", 12, 3, 1)
    assert partitions.lag("a") == 0
    assert ask(partitions) == {"a": Position(3, 12, 3, 1)}
    assert ask(partitions) == {}


def test_an_idle_answer_sets_the_lag_and_changes_nothing_else() -> None:
    partitions = fetcher()
    assert partitions.judge("a", part(hw=9), 0) == Append(b"", 9, 1)
    assert partitions.lag("a") == 0
    partitions.appended("a", 10, 2, 0)
    assert ask(partitions) == {}


def test_an_answer_to_what_is_no_longer_asked_is_ignored() -> None:
    partitions = fetcher()
    partitions.appended("a", 11, 3, 0)
    assert partitions.judge("a", part(records=b"x"), 0) == Ignored()
    partitions.remove("a")
    assert partitions.judge("a", part(records=b"x"), 0) == Ignored()
    assert partitions.judge("c", part(), 0) == Ignored()


def test_a_new_leader_epoch_starts_over_and_drops_answers_of_the_old_one() -> None:
    partitions = fetcher()
    assert partitions.add("a", AT._replace(leader_epoch=4))
    assert partitions.judge("a", part(records=b"x"), 0) == Ignored()
    assert ask(partitions) == {"a": AT._replace(leader_epoch=4)}
    assert partitions.judge("a", part(records=b"x"), 0) == Append(b"x", 12, 1)


def test_the_same_leader_epoch_neither_restarts_nor_resurrects() -> None:
    partitions = fetcher()
    partitions.appended("a", 11, 3, 0)
    assert not partitions.add("a", AT)
    assert partitions.position("a").fetch_offset == 11
    partitions.fail("a", "disk", 5)
    assert not partitions.add("a", AT)
    assert "a" in failed_set(partitions) and "a" not in partitions


# The table of states, row by row.


def test_a_partition_whose_disk_fails_is_failed_and_the_others_go_on() -> None:
    partitions = fetcher()
    assert partitions.fail("a", "append: I/O error", 5) == Fail("append: I/O error")
    assert list(partitions) == ["b"] and partitions.lag("a") is None
    assert failed_set(partitions).get("a") == ("append: I/O error", 5, 3)
    assert partitions.next(0).forgotten == ["a"]


def test_a_directory_that_went_leaves_no_failed_partition() -> None:
    partitions = fetcher()
    partitions.fail("a", "append", 5)
    partitions.remove("a")
    assert len(failed_set(partitions)) == 0 and "a" not in partitions


def test_corrupt_records_are_asked_for_again_after_a_while() -> None:
    partitions = fetcher("a")
    assert partitions.judge("a", part(records=b"bad"), 0) == Append(b"bad", 12, 1)
    assert partitions.delay("a", 100) == Delayed(None)
    assert not partitions.has_something_to_ask and partitions.wake_ms == 1100
    assert partitions.judge("a", part(records=b"x"), 100) == Ignored()
    assert ask(partitions, 1099) == {}
    assert ask(partitions, 1100) == {"a": AT}
    assert len(failed_set(partitions)) == 0


def test_a_fenced_epoch_that_is_still_ours_fails_the_partition_until_the_next() -> None:
    partitions = fetcher()
    assert isinstance(partitions.judge("a", part(ErrorCode.FENCED_LEADER_EPOCH), 5), Fail)
    assert partitions.add("a", AT._replace(leader_epoch=4))
    assert len(failed_set(partitions)) == 0 and partitions.phase("a") is Phase.FETCHING


def test_a_fenced_epoch_that_moved_meanwhile_only_delays() -> None:
    partitions = fetcher()
    partitions.add("a", AT._replace(leader_epoch=4))
    fenced = part(ErrorCode.FENCED_LEADER_EPOCH)
    assert partitions.judge("a", fenced, 5) == Delayed(ErrorCode.FENCED_LEADER_EPOCH)
    assert len(failed_set(partitions)) == 0


@pytest.mark.parametrize("code", [75, 6, 3, 100, 103, 56, -1, 9999])
def test_other_codes_delay(code: int) -> None:
    partitions = fetcher()
    assert isinstance(partitions.judge("a", part(code), 0), Delayed)
    assert partitions.is_delayed("a") and not partitions.is_delayed("b")
    assert ask(partitions, 1000) == {"a": AT}


def test_an_offset_out_of_range_is_repaired() -> None:
    partitions = fetcher()
    assert partitions.judge("a", part(ErrorCode.OFFSET_OUT_OF_RANGE), 0) == OutOfRange()
    assert partitions.phase("a") is Phase.TRUNCATING
    assert partitions.judge("a", part(ErrorCode.OFFSET_OUT_OF_RANGE), 0) == Ignored()
    assert ask(partitions) == {}
    partitions.truncated("a", 4, 1, 4)
    assert ask(partitions) == {"a": Position(3, 4, 1, 4)}
    assert partitions.phase("a") is Phase.FETCHING


def test_a_repair_that_is_refused_fails_or_delays_like_a_fetch() -> None:
    partitions = fetcher()
    partitions.judge("a", part(ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    moved = partitions.repair_refused("a", ErrorCode.FENCED_LEADER_EPOCH, 2, 0)
    assert moved == Delayed(ErrorCode.FENCED_LEADER_EPOCH)
    assert ask(partitions, 1000) == {"a": AT}
    partitions.judge("a", part(ErrorCode.OFFSET_OUT_OF_RANGE), 1000)
    assert isinstance(partitions.repair_refused("a", ErrorCode.FENCED_LEADER_EPOCH, 3, 1000), Fail)
    assert partitions.repair_refused("a", ErrorCode.REQUEST_TIMED_OUT, 3, 1000) == Ignored()


def test_one_whose_records_are_in_the_tier_alone_is_not_asked_for_until_it_has_begun_behind_them() -> None:
    partitions = fetcher()
    moved = part(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, hw=200)
    assert partitions.judge("a", moved, 0) == MovedToTier()
    assert partitions.phase("a") is Phase.TRUNCATING and partitions.lag("a") == 190
    assert partitions.judge("a", part(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE), 0) == Ignored()
    assert ask(partitions) == {}
    partitions.truncated("a", 180, 2, 0)
    assert ask(partitions) == {"a": Position(3, 180, 2, 0)} and partitions.lag("a") == 20


def test_trouble_with_the_tier_delays_a_partition_and_only_a_fenced_epoch_fails_it() -> None:
    partitions = fetcher()
    partitions.judge("a", part(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE), 0)
    assert partitions.delay("a", 0) == Delayed(None)
    assert ask(partitions, 1000) == {"a": AT}
    partitions.judge("a", part(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE), 1000)
    step = partitions.repair_refused("a", ErrorCode.FENCED_LEADER_EPOCH, 3, 1000)
    assert isinstance(step, Fail) and step.is_fenced


def test_a_request_that_failed_delays_all_partitions() -> None:
    partitions = fetcher()
    partitions.session.lost()
    partitions.request_failed(50)
    assert partitions.is_delayed("a") and partitions.is_delayed("b")
    assert partitions.next(1050).listed == [("a", AT), ("b", AT)]


def test_a_diverging_epoch_is_cut_before_anything_else_counts() -> None:
    partitions = fetcher()
    assert partitions.judge("a", part(diverging=(1, 6), records=b"x"), 0) == Diverged(1, 6)
    assert partitions.judge("a", part(records=b"x"), 0) == Ignored()
    partitions.truncated("a", 6, 1, 0)
    assert ask(partitions) == {"a": Position(3, 6, 1, 0)}


def test_a_truncation_of_a_partition_that_left_meanwhile_changes_nothing() -> None:
    partitions = fetcher()
    partitions.judge("a", part(diverging=(1, 6)), 0)
    partitions.remove("a")
    partitions.truncated("a", 6, 1, 0)
    partitions.appended("a", 6, 1, 0)
    assert "a" not in partitions and partitions.delay("a", 0) == Ignored() == partitions.fail("a", "x", 0)


codes = st.sampled_from([0, 0, 0, 1, 3, 6, 56, 74, 75, 100, 109])


@given(st.lists(st.tuples(st.sampled_from("abc"), codes, st.integers(0, 3)), max_size=40))
def test_no_trouble_of_one_partition_touches_another(events: list[tuple[str, int, int]]) -> None:
    partitions = fetcher("a", "b", "c", "healthy")
    now_ms = 0
    healthy = AT.fetch_offset
    for key, code, choice in events:
        now_ms += 300
        step: Step = partitions.judge(key, part(code), now_ms)
        if isinstance(step, Append) and choice == 0:
            partitions.fail(key, "append", now_ms)
        elif isinstance(step, OutOfRange | MovedToTier) and choice:
            partitions.truncated(key, choice, 0, 0)
        if choice == 3 and key not in partitions:
            failed = failed_set(partitions).get(key)
            assert failed is not None
            assert partitions.add(key, AT._replace(leader_epoch=failed.leader_epoch + 1))
        assert isinstance(partitions.judge("healthy", part(records=b"x"), now_ms), Append)
        healthy += 1
        partitions.appended("healthy", healthy, 3, 0)
        assert ask(partitions, now_ms)["healthy"].fetch_offset == healthy
        for name in "abc":
            assert (name in partitions) != (name in failed_set(partitions))
            if name in partitions and not partitions.is_delayed(name) and partitions.phase(name) is Phase.FETCHING:
                assert partitions._followed[name].asked == partitions.position(name)


def test_a_leader_that_does_not_know_yet_is_asked_again_soon_and_then_less_and_less_often() -> None:
    partitions = fetcher()
    now_ms, waits = 0, []
    for _ in range(8):
        partitions.judge("a", part(ErrorCode.UNKNOWN_LEADER_EPOCH), now_ms)
        wake_ms = partitions.wake_ms
        assert wake_ms is not None
        waits.append(wake_ms - now_ms)
        now_ms = wake_ms
        assert ask(partitions, now_ms) == {"a": AT}
    assert waits == [20, 40, 80, 160, 320, 640, 1000, 1000]
    partitions.judge("a", part(records=b"x"), now_ms)
    partitions.judge("a", part(ErrorCode.NOT_LEADER_OR_FOLLOWER), now_ms)
    assert partitions.wake_ms == now_ms + 20


def test_delays_of_different_length_end_in_their_own_order() -> None:
    partitions = fetcher()
    partitions.delay("a", 0)
    partitions.judge("b", part(ErrorCode.NOT_LEADER_OR_FOLLOWER), 0)
    assert partitions.wake_ms == 20
    assert ask(partitions, 20) == {"b": AT}
    assert partitions.wake_ms == 1000
    partitions.add("a", AT._replace(leader_epoch=4))
    assert partitions.wake_ms is None


def test_requests_that_fail_one_after_another_are_made_less_and_less_often() -> None:
    partitions = fetcher()
    now_ms, waits = 0, []
    for _ in range(7):
        partitions.session.lost()
        partitions.request_failed(now_ms)
        wake_ms = partitions.wake_ms
        assert wake_ms is not None
        waits.append(wake_ms - now_ms)
        now_ms = wake_ms
        assert set(ask(partitions, now_ms)) == {"a", "b"}
    assert waits == [20, 40, 80, 160, 320, 640, 1000]
    partitions.request_answered()
    partitions.request_failed(now_ms)
    assert partitions.wake_ms == now_ms + 20
