"""What Spark is told of a micro-batch that did not come to its end."""

import traceback
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError

from headrace.pipeline.lake_sink import LakeSink
from headrace.pipeline.outcome import PipelineFailed

CANCELLED = """An error occurred while calling o155.collectToPython.
: org.apache.spark.SparkException: Job 3 cancelled part of cancelled job group 833ccbf2
\tat org.apache.spark.errors.SparkCoreErrors$.sparkJobCancelled(SparkCoreErrors.scala:252)
"""


def test_of_a_job_that_was_cancelled_spark_is_told_one_sentence_without_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the traces its regex for what an interruption looks like would run out of stack."""

    def cancelled(*_: object) -> None:
        raise Py4JError(CANCELLED)

    monkeypatch.setattr(LakeSink, "_write", cancelled)
    nothing = cast(Any, None)
    sink = LakeSink(*[nothing] * 6)
    sink.started(nothing, nothing)
    with pytest.raises(PipelineFailed, match=r"^Job 3 cancelled part of cancelled job group 833ccbf2$") as failed:
        sink.write(nothing, 7)
    told = "".join(traceback.format_exception(failed.value))
    assert "SparkCoreErrors" not in told and "Py4J" not in told
    assert sink.failure is failed.value
