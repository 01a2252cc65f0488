"""The table of orders: filled by `headrace pipeline lake`, and read back."""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from demo.evidence import LakeRow
from demo.plan import ORDERS, SCHEMA
from headrace.errors import KafkaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.lake import LakeOptions, LakeProgress

TABLE = "lake"
EVERY_S = 3.0
TRIES = 5
OF_RECORDS = ("key", "topic", "partition", "offset")
COLUMNS = tuple(f"_{name}" if name in OF_RECORDS else name for name in LakeRow._fields)


class Lake:
    """The pipeline in a thread, in the session of the other query. One that fails is run again."""

    def __init__(
        self, spark: "SparkSession", bootstrap: str, directory: Path, on_progress: "Callable[[LakeProgress], None]"
    ) -> None:
        self._spark, self._bootstrap, self._directory, self._on_progress = spark, bootstrap, directory, on_progress
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lake", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """All that is there is in the table."""
        self._stop.set()
        self._thread.join()
        self.look()
        self._try(once=True)

    def look(self) -> None:
        """Raises what it could not get over."""
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._try(once=False)
        except BaseException as failure:  # whatever it was, who looks hears of it
            self.failure = failure

    def _try(self, *, once: bool) -> None:
        from headrace.pipeline.lake import Watcher, run
        from headrace.pipeline.outcome import PipelineFailed

        stop = threading.Event() if once else self._stop
        for attempt in range(1, TRIES + 1):
            try:
                run(self._options(once), Watcher(progressed=self._on_progress), stop, self._spark)
                return
            except (PipelineFailed, KafkaError) as failure:
                print(f"lake: {failure}", file=sys.stderr, flush=True)
                if attempt == TRIES:
                    raise

    def _options(self, once: bool) -> "LakeOptions":
        from headrace.pipeline.lake import LakeOptions

        return LakeOptions(
            topics=(ORDERS,),
            to=str(self._directory / TABLE),
            format="delta",
            bootstrap=self._bootstrap,
            once=once,
            every_s=EVERY_S,
            schema=SCHEMA,
            event_time="at",
        )


def written_ms(directory: Path) -> list[int]:
    """When rows came into the table, by its own log. Where files were merged none did."""
    versions = [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted((directory / TABLE / "_delta_log").glob("*.json"))
    ]
    return [
        next(action["commitInfo"]["timestamp"] for action in actions if "commitInfo" in action)
        for actions in versions
        if any(action.get("add", {}).get("dataChange") for action in actions)
    ]


def rows_in(directory: Path) -> list[LakeRow]:
    """All of the table, as anybody who knows Delta tables reads it."""
    from deltalake import DeltaTable

    found = DeltaTable(str(directory / TABLE)).to_pyarrow_table(columns=list(COLUMNS))
    return [LakeRow(*values) for values in zip(*(found[name].to_pylist() for name in COLUMNS), strict=True)]
