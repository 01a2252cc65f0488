"""The sink `headrace` as it is, with places at which a test can hold it: files in a directory that all processes see.

Whoever is the first at a place `P` makes `P.reached`, with the number of its process, and stays there for as long as
there is a file `P.hold`. Places are `writing-N`, `before-commit-N` and `after-commit-N`, for batch N.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.spark import task
from headrace.spark.data_source import HeadraceDataSource
from headrace.spark.messages import Written
from headrace.spark.stream_sink import StreamSink
from headrace.spark.write_options import write_options

if TYPE_CHECKING:
    import pyarrow as pa

LOOK_S = 0.02


class Stage:
    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)

    # The test.

    def hold(self, place: str) -> None:
        (self._directory / f"{place}.hold").touch()

    def release(self, place: str) -> None:
        (self._directory / f"{place}.hold").unlink()

    def reached_by(self, place: str) -> int:
        """The process; 0 if there was none yet."""
        try:
            return int((self._directory / f"{place}.reached").read_text() or "0")
        except FileNotFoundError:
            return 0

    def outcome(self, place: str) -> str:
        """What became of the task that was held there."""
        path = self._directory / f"{place}.outcome"
        return path.read_text() if path.exists() else ""

    # Who is held.

    def reach(self, place: str) -> bool:
        """Whether it was the first here."""
        try:
            with (self._directory / f"{place}.reached").open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return False
        while (self._directory / f"{place}.hold").exists():
            time.sleep(LOOK_S)
        return True

    def tell(self, place: str, outcome: str) -> None:
        beside = self._directory / f"{place}.telling"
        beside.write_text(outcome)
        beside.rename(self._directory / f"{place}.outcome")


class StagedSource(HeadraceDataSource):
    @classmethod
    def name(cls) -> str:
        return "staged"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002  # Spark gives it by name
        given = dict(self.options)
        stage = Stage(given.pop("stage"))
        return StagedSink(given, stage)


class StagedSink(StreamSink):
    def __init__(self, given: dict[str, str], stage: Stage) -> None:
        super().__init__(write_options(given))
        self._stage = stage
        self._was_held = False

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        place = f"writing-{task.batch(task.current()).batch_id}"
        try:
            message = super().write(self._held_half_way(iterator, place))
        except BaseException as failure:  # whatever it is, the test wants to know
            if self._was_held:
                self._stage.tell(place, f"failed: {failure}")
            raise
        assert isinstance(message, Written)
        if self._was_held:
            self._stage.tell(place, "skipped" if message.outcome.is_skipped else "written")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._stage.reach(f"before-commit-{batchId}")
        super().commit(messages, batchId)
        self._stage.reach(f"after-commit-{batchId}")

    def _held_half_way(self, rows: "Iterator[pa.RecordBatch]", place: str) -> "Iterator[pa.RecordBatch]":
        """All rows are taken from Spark first: what is held does not need it any more."""
        batches = list(rows)
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
        self._was_held = self._stage.reach(place) if batches else False
        for batch in batches:
            yield batch.slice(batch.num_rows // 2)
