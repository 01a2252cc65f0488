"""What the driver of a stream decides, with logs that are changed by hand; offsets go through their text each time."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.spark.offsets import StreamOffset, from_json
from headrace.spark.option_values import OptionRefused
from headrace.spark.options import read_options
from headrace.spark.stream_planning import StreamPlanner
from headrace.spark.verdicts import DataLoss, Verdict
from tests.spark.fake_view import NEW, OLD, FakeLog, FakeView

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class HandClock:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


class Driver:
    """Does what Spark does: hands the text of an offset back, and plans between two."""

    def __init__(self, view: FakeView, **options: str) -> None:
        given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "earliest", **options}
        self.view = view
        self.clock = HandClock()
        given = {name: text for name, text in given.items() if text}
        self.planner = StreamPlanner(read_options(given, "stream"), view, self.clock)
        self.at = _through_text(self.planner.initial())
        self.is_limited = len(options) > 0

    def batch(self) -> list[tuple[int, int, int]] | None:
        """Partition, begin and end of its pieces; None if Spark would make none."""
        found = self.planner.next(self.at, self.is_limited)
        if found is self.at:
            return None
        before, self.at = self.at, _through_text(found)
        return self.pieces(before, self.at)

    def pieces(self, start: StreamOffset, end: StreamOffset) -> list[tuple[int, int, int]]:
        return [
            (piece.range.partition.partition, piece.range.start, piece.range.end)
            for piece in self.planner.pieces(start, end)
        ]


def _through_text(offset: StreamOffset) -> StreamOffset:
    return from_json(json.loads(json.dumps(offset.to_json())))


def two(end_0: int = 10, end_1: int = 20) -> FakeView:
    return FakeView({T0: FakeLog(end=end_0), T1: FakeLog(end=end_1)})


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


def test_a_new_partition_that_does_not_begin_with_its_first_record_is_a_loss() -> None:
    for fails in ("true", "false"):
        driver = Driver(FakeView({T0: FakeLog(end=10)}), failOnDataLoss=fails)
        driver.batch()
        driver.view.logs[T1] = FakeLog(start=3, end=7)
        if fails == "true":
            with pytest.raises(DataLoss, match="AGED_OUT: records of t-1 from offset 0 to 2 were deleted"):
                driver.batch()
        else:
            assert driver.batch() == [(1, 3, 7)]
            assert driver.batch() is None


U0 = TopicPartition("u", 0)


def by_pattern(view: FakeView, **options: str) -> Driver:
    return Driver(view, **{"subscribe": "", "subscribePattern": "[tu]", **options})


def test_a_topic_that_goes_from_a_pattern_when_all_of_it_was_read_keeps_its_place() -> None:
    driver = by_pattern(FakeView({T0: FakeLog(end=5), U0: FakeLog(end=7)}))
    driver.batch()
    del driver.view.logs[U0]
    assert driver.batch() == []  # by which the next driver knows that it is no news
    assert driver.at.gone == {"u"}
    driver.view.logs[T0].end = 6
    again = by_pattern(driver.view)
    again.at = driver.at
    assert again.batch() == [(0, 5, 6)]
    assert again.at.offsets == {T0: 6, U0: 7}
    again.view.logs[U0] = FakeLog(end=9)
    assert again.batch() == [(0, 7, 9)]
    assert again.at.gone == set()


@pytest.mark.parametrize("is_new_driver", [False, True])
def test_a_topic_that_goes_from_a_pattern_with_records_that_were_not_read_is_a_loss(is_new_driver: bool) -> None:
    """A new driver cannot know whether there were any."""
    for fails in ("true", "false"):
        limits = {"maxOffsetsPerTrigger": "4", "failOnDataLoss": fails}
        driver = by_pattern(FakeView({T0: FakeLog(end=5), U0: FakeLog(end=7)}), **limits)
        driver.batch()
        del driver.view.logs[U0]
        if is_new_driver:
            again = by_pattern(driver.view, **limits)
            driver, again.at = again, driver.at
        if fails == "true":
            with pytest.raises(DataLoss, match="GONE: topic 'u' was deleted, and of u-0 only what is before offset 2"):
                driver.batch()
        else:
            assert driver.batch() == [(0, 2, 5)]
            assert driver.batch() is None


def test_a_topic_that_metadata_leaves_out_for_a_moment_is_not_gone() -> None:
    driver = by_pattern(FakeView({T0: FakeLog(end=5), U0: FakeLog(end=7)}), maxOffsetsPerTrigger="4")
    driver.batch()
    driver.view.late = {"u"}
    driver.batch()
    driver.view.late.clear()
    assert driver.batch() == [(0, 2, 6)]


def test_a_partition_that_is_not_read_for_a_while_is_gone_on_with() -> None:
    view = two()
    assign = {"subscribe": "", "assign": '{"t": [0, 1]}'}
    both = Driver(view, **assign)
    both.batch()
    one = Driver(view, subscribe="", assign='{"t": [0]}')
    one.at = both.at
    view.logs[T0].end = 11
    assert one.batch() == [(0, 10, 11)]
    both.at = one.at
    view.logs[T1].end = 22
    assert both.batch() == [(1, 20, 22)]


def test_a_partition_that_a_topic_made_anew_does_not_have_loses_its_place() -> None:
    driver = Driver(two(), failOnDataLoss="false")
    driver.batch()
    driver.view.ids = {"t": NEW}
    driver.view.logs = {T0: FakeLog(end=3)}
    assert driver.batch() == [(0, 0, 3)]
    driver.view.logs[T1] = FakeLog(end=30)
    assert driver.batch() == [(1, 0, 30)]


def test_a_topic_that_is_gone_is_named() -> None:
    driver = Driver(two())
    driver.batch()
    driver.view.logs.clear()
    with pytest.raises(KafkaError, match="topic 't' does not exist"):
        driver.batch()


@pytest.mark.parametrize(
    ("log", "topic_id", "verdict", "batch"),
    [
        (FakeLog(start=12, end=30), None, Verdict.AGED_OUT, [(0, 12, 30)]),
        (FakeLog(end=4), NEW, Verdict.RECREATED, [(0, 0, 4), (1, 0, 20)]),
        (FakeLog(end=400), NEW, Verdict.RECREATED, [(0, 0, 400), (1, 0, 20)]),
        (FakeLog(end=6, epoch=1, epoch_ends={0: 6}), None, Verdict.TRUNCATED, []),
        (FakeLog(end=40, epoch=1, epoch_ends={0: 6}), None, Verdict.TRUNCATED, [(0, 6, 40)]),
    ],
)
def test_a_loss_stops_the_query_unless_it_is_accepted(
    log: FakeLog, topic_id: bytes | None, verdict: Verdict, batch: list[tuple[int, int, int]]
) -> None:
    for accepted in ("false", "true"):
        driver = Driver(two(), failOnDataLoss="false" if accepted == "true" else "true")
        driver.batch()
        driver.view.logs[T0] = log
        driver.view.ids = {} if topic_id is None else {"t": topic_id}
        if accepted == "true":
            before = driver.at
            assert driver.batch() == batch
            assert driver.pieces(before, driver.at) == batch  # when it is done again
            assert driver.batch() is None
        else:
            with pytest.raises(DataLoss) as raised:
                driver.batch()
            assert raised.value.loss.verdict is verdict


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize(
    "log",
    [
        FakeLog(end=8, epoch=1, epoch_ends={0: 10}),  # another leader, that knows late what is committed
        FakeLog(end=8, high_watermark=10),  # now only what is committed is read, and a transaction is open
        FakeLog(end=8, epoch=1, high_watermark=8, late_high_watermark=10),  # no epochs, but it comes
    ],
)
def test_a_log_that_ends_before_what_was_read_is_waited_for_where_nothing_was_cut(log: FakeLog, fails: str) -> None:
    driver = Driver(two(), failOnDataLoss=fails)
    driver.batch()
    driver.view.logs[T0] = replace(log)
    assert driver.batch() is None
    driver.view.logs[T1].end = 21
    assert driver.batch() == [(1, 20, 21)]
    assert driver.at.offsets[T0] == 10
    driver.view.logs[T0].end = 12
    assert driver.batch() == [(0, 10, 12)]


def test_a_log_that_stays_before_what_was_read_was_cut() -> None:
    driver = Driver(two())
    driver.batch()
    driver.view.logs[T0] = FakeLog(end=8, epoch=1)
    with pytest.raises(DataLoss, match="TRUNCATED: t-0 had reached offset 10, and of that only what is before 8"):
        driver.batch()


def test_a_log_that_was_cut_below_the_place_where_a_query_begins_and_has_grown_again_is_truncated() -> None:
    driver = Driver(two(), startingOffsets="latest")
    driver.view.logs[T0] = FakeLog(end=12, epoch=1, epoch_ends={0: 8})
    with pytest.raises(DataLoss, match="TRUNCATED: t-0 had reached offset 10, and of that only what is before 8"):
        driver.batch()


def test_an_offset_that_was_named_before_it_was_written_is_there_when_it_is() -> None:
    """Whoever leads meanwhile."""
    driver = Driver(two(), startingOffsets='{"t": {"0": 11, "1": 20}}')
    driver.view.logs[T0] = FakeLog(end=12, epoch=1, epoch_ends={0: 10})
    assert driver.batch() == [(0, 11, 12)]


def test_no_verdict_is_given_by_old_metadata() -> None:
    driver = Driver(two())
    driver.batch()
    driver.view.stale_ids = {"t": OLD}
    driver.view.ids = {"t": NEW}
    driver.view.logs[T0].end = 4
    with pytest.raises(DataLoss, match="RECREATED"):
        driver.batch()


def test_an_offset_that_is_named_and_not_written_is_not_a_loss_of_the_log() -> None:
    driver = Driver(two(), startingOffsets='{"t": {"0": 11, "1": 0}}')
    with pytest.raises(DataLoss) as raised:
        driver.batch()
    assert raised.value.loss.verdict is Verdict.NOT_YET


def test_retention_between_the_start_and_the_first_batch_is_no_loss_to_who_wants_all_there_is() -> None:
    driver = Driver(two())
    driver.view.logs[T0].start = 4
    assert driver.batch() == [(0, 4, 10), (1, 0, 20)]
    named = Driver(two(), startingOffsets='{"t": {"0": 0, "1": 0}}')
    named.view.logs[T0].start = 4
    with pytest.raises(DataLoss, match="AGED_OUT"):
        named.batch()


def test_each_partition_may_begin_with_all_there_is_or_at_an_offset_that_is_named() -> None:
    driver = Driver(two(), startingOffsets='{"t": {"0": -2, "1": 0}}')
    driver.view.logs[T0].start = 4
    assert driver.batch() == [(0, 4, 10), (1, 0, 20)]


@pytest.mark.parametrize(
    "options",
    [{"startingOffsets": "latest"}, {"startingTimestamp": "5"}, {"startingOffsets": '{"t": {"0": -1, "1": -1}}'}],
)
def test_what_is_deleted_after_the_place_where_a_query_began_is_lost(options: dict[str, str]) -> None:
    view = FakeView({T0: FakeLog(start=7, end=10), T1: FakeLog(end=20)}, times={T0: [(5, 10)], T1: [(5, 20)]})
    driver = Driver(view, **options)
    assert driver.batch() is None
    view.logs[T0] = FakeLog(start=500, end=600)
    with pytest.raises(DataLoss, match="AGED_OUT: records of t-0 from offset 10 to 499"):
        driver.batch()


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_what_is_deleted_while_a_query_is_stopped_is_lost_also_before_its_first_record(starting: str) -> None:
    driver = Driver(two(0, 0), startingOffsets=starting)
    assert driver.batch() is None  # Spark writes down that it was there, in a first batch of nothing
    driver.view.logs[T0] = FakeLog(start=500, end=600)
    again = Driver(driver.view, startingOffsets=starting)
    again.at = driver.at
    with pytest.raises(DataLoss, match="AGED_OUT: records of t-0 from offset 0 to 499"):
        again.batch()


def test_epochs_are_asked_for_only_after_a_change_of_leaders() -> None:
    driver = Driver(two())
    driver.batch()
    driver.view.logs[T0].end = 11
    driver.batch()
    assert driver.view.epochs_asked == 0
    driver.view.logs[T0] = FakeLog(end=12, epoch=4, epoch_ends={0: 11})
    assert driver.batch() == [(0, 11, 12)]
    assert driver.view.epochs_asked == 1
    driver.view.logs[T0].end = 13
    driver.batch()
    assert driver.view.epochs_asked == 1


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
