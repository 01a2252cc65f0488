"""What Spark tells a task about itself. Some of it lies under names that Spark does not promise: only here are they.

Whatever is missing is an error: a task that guessed could write its rows twice.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from headrace.errors import ErrorCode, KafkaError

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
APP_START = "spark.app.startTime"


class Context(Protocol):
    """What is used of `pyspark.TaskContext`."""

    def partitionId(self) -> int: ...

    def taskAttemptId(self) -> int: ...

    def getLocalProperty(self, key: str) -> str | None: ...


class Attempt(NamedTuple):
    """One try at one task."""

    partition: int
    attempt_id: int
    """Of no other in this application."""


class Batch(NamedTuple):
    """Of a streaming query."""

    query_id: str
    batch_id: int
    run_id: str
    app_start_ms: int
    """0 if that is not told."""


class Group(NamedTuple):
    """All attempts at one batch, wherever they run."""

    scope: str
    query_id: str
    batch_id: int
    run_id: str


class ContextMissing(KafkaError):
    def __init__(self, what: str) -> None:
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"this Spark does not tell a task {what}, without which exactly_once is not possible: use a version that "
            "headrace[spark] names, or option deliveryGuarantee=at_least_once",
        )


class NotOfBatch(KafkaError):
    """A write of `foreach_batch` from elsewhere than the function that Spark runs for the batch."""

    def __init__(self, asked: int, found: str | None) -> None:
        runs = "no batch" if found is None else f"batch {found}"
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"foreach_batch is to write batch {asked}, and Spark runs {runs} in this thread: call it in the function "
            "that foreachBatch runs, with the number that this gets, and in a thread of your own through "
            "pyspark.inheritable_thread_target",
        )


def current() -> Context:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise ContextMissing("that it is one")
    return cast(Context, context)


def attempt(context: Context) -> Attempt:
    return Attempt(
        _whole(str(context.partitionId()), "its partition"), _whole(str(context.taskAttemptId()), "its attempt")
    )


def batch(context: Context) -> Batch:
    get = context.getLocalProperty
    return Batch(
        query_id=_text(get, QUERY_ID, "the id of its query"),
        batch_id=_whole(get(BATCH_ID), "the number of its batch"),
        run_id=_text(get, RUN_ID, "the run of its query"),
        app_start_ms=_whole(get(APP_START) or "0", "when its application began"),
    )


def check_foreach_batch(context: Context, asked: int) -> None:
    """NotOfBatch unless it is that batch. Spark's properties are those of a thread, and others do not inherit them."""
    found = context.getLocalProperty(BATCH_ID)
    if found != str(asked):
        raise NotOfBatch(asked, found)


def _text(get: Callable[[str], str | None], key: str, what: str) -> str:
    text = get(key)
    if not text or ":" in text:
        raise ContextMissing(f"{what} ({key})")
    return text


def _whole(text: str | None, what: str) -> int:
    if text is None or not text.isascii() or not text.isdigit():
        raise ContextMissing(what)
    return int(text)
