"""What the driver of a stream does when something is not there any more, or not yet."""

from dataclasses import replace

import pytest

from headrace.errors import KafkaError
from headrace.model import ZERO_UUID, TopicPartition
from headrace.spark.offsets import from_json
from headrace.spark.option_values import OptionRefused
from headrace.spark.verdicts import DataLoss, Verdict
from tests.spark.fake_view import NEW, OLD, FakeLog, FakeView
from tests.spark.stream_driver import T0, T1, Driver, through_text, two


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


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("is_new_driver", [False, True])
def test_an_assigned_partition_that_a_topic_made_anew_does_not_have_is_told_with_what_helps(
    fails: str, is_new_driver: bool
) -> None:
    assign = {"subscribe": "", "failOnDataLoss": fails}
    driver = Driver(two(), assign='{"t": [0, 1]}', **assign)
    driver.batch()
    driver.view.ids = {"t": NEW}
    driver.view.logs = {T0: FakeLog(end=3)}
    if is_new_driver:
        again = Driver(driver.view, assign='{"t": [0, 1]}', **assign)
        again.planner.freeze()
        again.at = driver.at
        driver = again
    with pytest.raises(DataLoss, match=r"RECREATED: .*and there is no t-1 any more. Leave it out of option assign"):
        driver.batch()
    advised = Driver(driver.view, assign='{"t": [0]}', subscribe="", failOnDataLoss="false")
    advised.at = driver.at
    assert advised.batch() == [(0, 0, 3)]
    assert advised.batch() is None
    anew = Driver(driver.view, assign='{"t": [0]}', subscribe="")
    assert anew.batch() == [(0, 0, 3)]


@pytest.mark.parametrize("assign", ['{"t": [0, 2]}', '{"t": [2]}'])
def test_a_partition_that_is_assigned_and_was_never_there_is_a_wrong_option(assign: str) -> None:
    """To a new query, and to one that has read others."""
    with pytest.raises(OptionRefused, match="option assign names t-2, which is not there"):
        Driver(two(), subscribe="", assign=assign).batch()
    before = Driver(two(), subscribe="", assign='{"t": [0]}')
    before.batch()
    after = Driver(before.view, subscribe="", assign=assign)
    after.at = before.at
    with pytest.raises(OptionRefused, match="option assign names t-2, which is not there"):
        after.batch()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_has_fewer_partitions_was_made_anew_also_where_no_id_tells(fails: str) -> None:
    """By a checkpoint of Spark's own connector, and though there are more records than before."""
    driver = Driver(FakeView({T0: FakeLog(end=30)}), failOnDataLoss=fails)
    driver.at = from_json({"t": {"0": 10, "1": 20}})
    if fails == "true":
        with pytest.raises(DataLoss, match="RECREATED: topic 't' was deleted and made anew after t-0 had been read"):
            driver.batch()
        return
    assert driver.batch() == [(0, 0, 30)]
    assert driver.batch() is None
    driver.view.logs[T1] = FakeLog(end=5)
    assert driver.batch() == [(1, 0, 5)]


def test_metadata_that_do_not_know_a_partition_yet_are_waited_for() -> None:
    driver = Driver(two())
    driver.batch()
    behind = driver.view.logs.pop(T1)
    driver.view.logs[T0].end = 11
    assert driver.batch() == [(0, 10, 11)]
    driver.view.logs[T1] = behind
    behind.end = 21
    assert driver.batch() == [(1, 20, 21)]


def test_a_topic_that_is_not_there_when_a_query_begins_is_named() -> None:
    with pytest.raises(KafkaError, match="topic 't' does not exist"):
        Driver(FakeView({})).batch()


@pytest.mark.parametrize("is_new_driver", [False, True])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_named_topic_that_goes_is_told_with_how_far_it_was_read_and_what_to_do(
    fails: str, is_new_driver: bool
) -> None:
    driver = Driver(FakeView({T0: FakeLog(end=5), U0: FakeLog(end=7)}), subscribe="t,u", failOnDataLoss=fails)
    driver.batch()
    del driver.view.logs[U0]
    if is_new_driver:
        again = Driver(driver.view, subscribe="t,u", failOnDataLoss=fails)
        again.at = driver.at
        again.planner.freeze()
        driver = again
    with pytest.raises(DataLoss, match=r"GONE: topic 'u', which the query names, was deleted, .* before offset 7"):
        driver.batch()
    driver.view.logs[T0].end = 6
    others = Driver(driver.view, subscribe="t", failOnDataLoss=fails)
    others.at = driver.at
    assert others.batch() == [(0, 5, 6)]


def test_only_a_topic_that_the_query_names_is_told_as_gone() -> None:
    """Not one whose place is only kept."""
    driver = Driver(FakeView({T0: FakeLog(end=5), U0: FakeLog(end=7)}), subscribe="t,u")
    driver.batch()
    del driver.view.logs[U0]
    others = Driver(driver.view, subscribe="t,x")
    others.at = driver.at
    with pytest.raises(KafkaError, match="topic 'x' does not exist"):
        others.batch()


def test_a_query_that_is_to_end_reads_what_is_there_when_its_topic_is_known() -> None:
    driver = Driver(FakeView({}))
    driver.planner.freeze()
    driver.view.logs[T0] = FakeLog(end=5)
    driver.at = through_text(driver.planner.initial())
    assert driver.batch() == [(0, 0, 5)]
    driver.view.logs[T0].end = 6
    assert driver.batch() is None


@pytest.mark.parametrize(("topic_id", "begin"), [(NEW, 0), (OLD, 7), (ZERO_UUID, 7)])
def test_a_topic_that_comes_back_to_a_pattern_is_read_from_its_beginning_if_it_is_known_to_be_another(
    topic_id: bytes, begin: int
) -> None:
    driver = by_pattern(FakeView({T0: FakeLog(end=5), U0: FakeLog(end=7)}))
    driver.batch()
    del driver.view.logs[U0]
    driver.batch()
    driver.view.logs[U0] = FakeLog(end=9)
    driver.view.ids = {"u": topic_id}
    assert driver.batch() == [(0, begin, 9)]
    assert driver.at.gone == set()
    driver.view.logs[U0].end = 10
    assert driver.batch() == [(0, 9, 10)]


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
