"""What the driver of a stream decides, with logs that are changed by hand; offsets go through their text each time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import TopicPartition
from headrace.spark.offsets import from_json
from headrace.spark.option_values import OptionRefused
from tests.spark.fake_view import OLD, FakeLog, FakeView
from tests.spark.stream_driver import T0, T1, Driver, two


def test_what_is_there_is_read_once_and_then_what_comes() -> None:
    driver = Driver(two())
    assert driver.batch() == [(0, 0, 10), (1, 0, 20)]
    assert driver.batch() is None
    driver.view.logs[T1].end = 25
    assert driver.batch() == [(1, 20, 25)]
    assert driver.batch() is None


def test_a_new_leader_alone_makes_no_batch() -> None:
    driver = Driver(two())
    driver.batch()
    driver.view.logs[T0].epoch = 5
    driver.view.logs[T0].epoch_ends = {0: 10}
    assert driver.batch() is None


def test_a_first_batch_that_is_done_again_begins_where_it_began() -> None:
    driver = Driver(two(), startingOffsets="latest")
    assert driver.batch() is None
    driver.view.logs[T0].end = 15
    first = driver.at
    assert driver.batch() == [(0, 10, 15)]
    driver.view.logs[T0].end = 90
    again = Driver(driver.view, startingOffsets="latest")
    assert again.at.offsets[T0] == 90
    assert driver.pieces(again.at, driver.at) == driver.pieces(first, driver.at) == [(0, 10, 15)]
    assert driver.batch() == [(0, 15, 90)]
    assert driver.at.begins == {}


def test_a_first_batch_of_nothing_that_is_done_again_loses_nothing() -> None:
    driver = Driver(two(), startingOffsets="latest")
    empty = driver.at  # Spark makes a batch that ends where it begins
    driver.view.logs[T0].end = 15
    again = Driver(driver.view, startingOffsets="latest")
    assert driver.pieces(again.at, empty) == []
    again.at = empty
    assert again.batch() == [(0, 10, 15)]


def test_a_new_partition_is_read_from_its_beginning() -> None:
    driver = Driver(FakeView({T0: FakeLog(end=10)}))
    driver.batch()
    driver.view.logs[T1] = FakeLog()
    assert driver.batch() is None
    driver.view.logs[T1].end = 7
    before = driver.at
    assert driver.batch() == [(1, 0, 7)]
    driver.view.logs[T1].start = 5  # retention went on, and the batch is done again
    assert driver.pieces(before, driver.at) == [(1, 0, 7)]


def test_a_checkpoint_of_sparks_own_connector_is_gone_on_from() -> None:
    driver = Driver(two())
    driver.at = from_json({"t": {"0": 4, "1": 20}})
    assert driver.batch() == [(0, 4, 10)]
    assert driver.at.topic_ids == {"t": OLD}
    assert [
        piece.range.topic_id for piece in driver.planner.pieces(from_json({"t": {"0": 1}}), from_json({"t": {"0": 2}}))
    ]


def test_a_batch_that_the_connector_has_not_finished_has_the_new_partitions_that_are_in_it() -> None:
    view = two()
    view.logs[T1].start = 2
    unfinished = from_json({"t": {"0": 6, "1": 9}})
    assert Driver(view).pieces(from_json({"t": {"0": 4}}), unfinished) == [(0, 4, 6), (1, 2, 9)]


def test_a_first_batch_that_the_connector_has_not_finished_is_not_taken_for_an_empty_one() -> None:
    unfinished = from_json({"t": {"0": 6, "1": 9}})
    for option in ("latest", '{"t": {"0": 0, "1": -1}}'):
        driver = Driver(two(), startingOffsets=option)
        with pytest.raises(OptionRefused, match="give the JSON that is there as option startingOffsets"):
            driver.pieces(driver.at, unfinished)
    by_time = {"startingTimestamp": "9", "startingOffsetsByTimestampStrategy": "latest"}
    driver = Driver(two(), **by_time)
    with pytest.raises(OptionRefused, match="give the JSON that is there as option startingOffsets"):
        driver.pieces(driver.at, unfinished)
    told = Driver(two(), startingOffsets='{"t": {"0": 1, "1": 2}}')
    assert told.pieces(told.at, unfinished) == [(0, 1, 6), (1, 2, 9)]


def test_limits_hold_until_all_is_read() -> None:
    driver = Driver(two(end_0=100, end_1=50), maxOffsetsPerTrigger="60")
    taken = []
    while (batch := driver.batch()) is not None:
        taken.append(sum(end - begin for _, begin, end in batch))
    assert taken == [60, 60, 30]


def test_bytes_limit_a_batch_by_what_records_have_on_average() -> None:
    view = FakeView({T0: FakeLog(end=100, record_bytes=10.0)})
    assert Driver(view, maxBytesPerTrigger="200").batch() == [(0, 0, 20)]


def test_a_limit_in_bytes_is_one_also_where_nobody_tells_sizes(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(FakeView({T0: FakeLog(end=100)}), maxBytesPerTrigger="200000")
    assert driver.batch() == [(0, 0, 20)]
    assert driver.batch() == [(0, 20, 40)]
    assert [record.getMessage() for record in caplog.records] == [
        "brokers do not tell how large records of t-0 are: for maxBytesPerTrigger each counts as 10000 bytes"
    ]


def test_too_few_records_wait_for_the_delay() -> None:
    driver = Driver(two(), minOffsetsPerTrigger="100", maxTriggerDelay="1s")
    assert driver.batch() == [(0, 0, 10), (1, 0, 20)]  # the first one does not wait
    driver.view.logs[T0].end = 15
    assert driver.batch() is None
    driver.clock.now_ms = 1_000
    assert driver.batch() == [(0, 10, 15)]


def test_who_is_to_end_with_what_is_there_does_not_wait_for_more() -> None:
    driver = Driver(two(), minOffsetsPerTrigger="20", maxOffsetsPerTrigger="20")
    driver.planner.freeze()
    taken = 0
    while (batch := driver.batch()) is not None:
        taken += sum(end - begin for _, begin, end in batch)
    assert taken == 30


def test_what_comes_after_the_query_was_told_to_end_is_left() -> None:
    driver = Driver(two(), maxOffsetsPerTrigger="20")
    driver.planner.freeze()
    driver.view.logs[T0].end = 1_000
    taken = 0
    while (batch := driver.batch()) is not None:
        taken += sum(end - begin for _, begin, end in batch)
    assert taken == 30
    assert driver.planner.latest().offsets == {T0: 1_000, T1: 20}


def test_times_say_where_a_stream_begins() -> None:
    view = two()
    view.times = {T0: [(5, 3)], T1: [(9, 8)]}
    assert Driver(view, startingTimestamp="4").at.offsets == {T0: 3, T1: 8}
    with pytest.raises(OptionRefused, match="no record of t-0 is as new as option startingTimestamp says"):
        Driver(view, startingTimestamp="7").batch()
    late = Driver(view, startingTimestamp="7", startingOffsetsByTimestampStrategy="latest")
    assert late.at.offsets == {T0: 10, T1: 8}


def test_offsets_by_partition_name_all_that_are_read_and_no_others() -> None:
    with pytest.raises(OptionRefused, match="startingOffsets does not name t-1, which is to be read"):
        Driver(two(), startingOffsets='{"t": {"0": -2}}').batch()
    with pytest.raises(OptionRefused, match="names t-2, which is not among the partitions to read"):
        Driver(two(), startingOffsets='{"t": {"0": -2, "1": 0, "2": 0}}').batch()
    assert Driver(two(), startingOffsets='{"t": {"0": -2, "1": -1}}').at.offsets == {T0: 0, T1: 20}


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_first_batch_is_done_again_though_its_options_fit_no_more(is_empty: bool) -> None:
    """Spark asks where the query begins before it does that."""
    options = {"startingOffsets": json.dumps({"t": {"0": 10 if is_empty else 4}})}
    driver = Driver(FakeView({T0: FakeLog(end=10)}), **options)
    batch = driver.batch()
    assert batch == (None if is_empty else [(0, 4, 10)])
    driver.view.logs[T1] = FakeLog(end=3)
    again = Driver(driver.view, **options)
    assert again.pieces(again.at, driver.at) == (batch or [])
    again.at = driver.at
    assert again.batch() == [(1, 0, 3)]


def test_a_first_batch_that_the_connector_has_not_finished_is_refused_where_its_options_fit_no_more() -> None:
    driver = Driver(two(), startingOffsets='{"t": {"0": 4}}')
    with pytest.raises(OptionRefused, match="startingOffsets does not name t-1"):
        driver.pieces(driver.at, from_json({"t": {"0": 6}}))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([T0, T1]), st.integers(1, 30)),
        st.tuples(st.just("elect"), st.sampled_from([T0, T1]), st.just(0)),
        st.tuples(st.just("batch"), st.just(T0), st.just(0)),
        st.tuples(st.just("again"), st.just(T0), st.just(0)),
    ),
    max_size=25,
)


@given(steps, st.sampled_from([{}, {"maxOffsetsPerTrigger": "7"}, {"startingOffsets": "latest"}]))
def test_every_record_is_planned_once_whatever_happens(
    taken: list[tuple[str, TopicPartition, int]], options: dict[str, str]
) -> None:
    """Appends, clean elections, and batches that are done again by a new driver."""
    driver = Driver(two(), **options)
    position = dict(driver.at.offsets)
    for what, one, number in [*taken, *[("batch", T0, 0)] * 200]:
        log = driver.view.logs[one]
        if what == "append":
            log.end += number
        elif what == "elect":
            log.epoch_ends[log.epoch] = log.end
            log.epoch += 1
        else:
            before = driver.at
            batch = driver.batch()
            if what == "again" and batch is not None:
                reborn = Driver(driver.view, **options)
                first = reborn.at if before.is_first else before
                assert reborn.pieces(first, driver.at) == batch
                reborn.at = driver.at
                driver = reborn
            for partition, begin, end in batch or ():
                assert position[TopicPartition("t", partition)] == begin
                position[TopicPartition("t", partition)] = end
    assert position == {one: log.end for one, log in driver.view.logs.items()}
