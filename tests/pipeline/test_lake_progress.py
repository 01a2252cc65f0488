"""Rows, speed, lag and the estimated end, from what Spark tells after each micro-batch."""

import sys
from io import StringIO
from typing import Any

import pytest

from headrace.cli import pipeline_bar
from headrace.pipeline.lake_progress import LakeProgress, ProgressClock
from headrace.pipeline.lake_sink import LakeResult


def told(batch: int, start: Any, end: Any, latest: Any) -> dict[str, Any]:
    return {"batchId": batch, "sources": [{"startOffset": start, "endOffset": end, "latestOffset": latest}]}


def test_what_is_behind_is_told_in_rows_in_seconds_and_until_when() -> None:
    clock = ProgressClock(started_s=100.0)
    first = clock.told(told(0, None, {"t": {"0": 30}, "@init": {"t": {"0": 10}}}, {"t": {"0": 110}}), 102.0)
    assert first is not None
    assert (first.batch_id, first.rows, first.lag_rows, first.rows_per_s, first.end_s) == (0, 20, 80, 10.0, 8.0)
    second = clock.told(told(1, {"t": {"0": 30}}, {"t": {"0": 90}}, {"t": {"0": 110}}), 104.0)
    assert second is not None and second.offsets == 90
    assert (second.rows, second.lag_rows, second.lag_s, second.rows_per_s, second.end_s) == (80, 20, 2.0, 20.0, 1.0)
    last = clock.told(told(2, {"t": {"0": 90}}, {"t": {"0": 110}}, {"t": {"0": 110}}), 105.0)
    assert last is not None and (last.rows, last.lag_rows, last.lag_s, last.end_s) == (100, 0, 0.0, 0.0)


def test_a_backlog_that_was_there_before_is_as_old_as_its_first_record() -> None:
    clock = ProgressClock(100.0, lambda offsets: dict.fromkeys(offsets, 7200.0))
    first = clock.told(told(0, None, {"t": {"0": 30}, "@init": {"t": {"0": 10}}}, {"t": {"0": 110}}), 102.0)
    assert first is not None and (first.lag_rows, first.lag_s) == (80, 7200.0)
    last = clock.told(told(1, {"t": {"0": 30}}, {"t": {"0": 110}}, {"t": {"0": 110}}), 104.0)
    assert last is not None and (last.lag_rows, last.lag_s) == (0, 0.0)


def batches(count: int) -> list[dict[str, Any]]:
    one = [told(at, {"t": {"0": at}}, {"t": {"0": at + 1}}, {"t": {"0": 110}}) for at in range(count)]
    return [{**report, "numInputRows": 1} for report in one]


def test_each_batch_with_rows_is_told_once_and_ages_are_asked_for_with_the_newest_one() -> None:
    asked: list[Any] = []

    def ages(offsets: Any) -> dict[Any, float]:
        asked.append(dict(offsets))
        return {}

    clock = ProgressClock(100.0, ages)
    reports = batches(4)
    reports[1]["numInputRows"] = 0
    assert [one.batch_id for one in clock.news(reports[:3], 102.0, lambda: False)] == [0, 2]
    assert asked == [{("t", 0): 3}]
    assert [one.batch_id for one in clock.news(reports, 103.0, lambda: False)] == [3]


def test_nothing_more_is_told_nor_asked_for_once_the_run_is_to_stop() -> None:
    asked: list[Any] = []

    def ages(offsets: Any) -> dict[Any, float]:
        asked.append(offsets)
        return {}

    heard: list[int] = []
    clock = ProgressClock(100.0, ages)
    for one in clock.news(batches(4), 102.0, lambda: len(heard) == 2):
        heard.append(one.batch_id)
    assert heard == [0, 1] and not asked


def test_another_kind_of_source_tells_nothing() -> None:
    assert ProgressClock(0.0).told(told(0, None, "rate 7", None), 1.0) is None


def test_of_a_batch_that_is_done_again_no_lag_is_told_and_then_that_of_the_backlog() -> None:
    clock = ProgressClock(100.0, lambda offsets: dict.fromkeys(offsets, 7200.0))
    assert clock.told(told(7, {"t": {"0": 10}}, {"t": {"0": 30}}, None), 101.0) is None
    next_ = clock.told(told(8, {"t": {"0": 30}}, {"t": {"0": 50}}, {"t": {"0": 110}}), 102.0)
    assert next_ is not None and (next_.rows, next_.lag_rows, next_.lag_s, next_.rows_per_s) == (40, 60, 7200.0, 20.0)


class Screen(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_stream_that_waits_for_its_first_record_is_not_said_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with pipeline_bar.LakeBar() as bar:
        bar.began()
    assert "waits for its first batch" in screen.getvalue()


def test_a_stream_that_has_written_something_is_not_said_to_wait_for_its_first_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with pipeline_bar.LakeBar() as bar:
        bar.began()
        bar.committed(LakeResult("t", "parquet", rows=7))
        assert bar._bar is not None and bar._bar.tasks[0].fields["told"] == "" and bar._bar.tasks[0].completed == 7
        bar.progressed(LakeProgress(3, 9, 5.0, 5, 3.2, 14.0))
        bar.committed(LakeResult("t", "parquet", rows=9))
        assert bar._bar.tasks[0].fields["told"].startswith("5 rows/s")


def test_people_who_wait_see_speed_lag_and_end() -> None:
    assert pipeline_bar.told(LakeProgress(3, 9, 12_000.4, 5, 3.2, 14.0)) == "12,000 rows/s, lag 3 s, through in 14 s"
    assert pipeline_bar.told(LakeProgress(3, 9, 0.0, 0, 0.0, 0.0)) == "0 rows/s, lag 0 s"
