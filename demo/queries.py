"""The Spark process, as the demo sees it: started, killed, started again, and let finish."""

from collections.abc import Callable
from pathlib import Path

from demo.child import Child, Document
from demo.evidence import QueryBatch

START_S_MAX = 300.0
FINISH_S_MAX = 600.0


class Queries:
    def __init__(self, bootstrap: str, directory: Path, now_s: Callable[[], float]) -> None:
        self.batches: list[QueryBatch] = []
        self.read = {"lake": 0, "sums": 0}
        """Orders, by query."""
        self.written_s = -1.0
        """When it was told last that sums were written."""
        self.verified: Document = {}
        """What `headrace pipeline verify` found when all was read."""
        self._bootstrap, self._directory, self._now_s = bootstrap, directory, now_s
        self._is_started = self._is_finished = False
        self._child = self._start()

    def _start(self) -> Child:
        log = self._directory / "spark.log"
        return Child("demo.spark_jobs", self._bootstrap, str(self._directory), log=log, on_line=self._heard)

    def _heard(self, told: Document) -> None:
        if "batch" in told:
            query, read = told["query"], told["read"]
            self.batches.append(QueryBatch(self._now_s(), query, told["batch"], read))
            self.read[query] = max(self.read[query], read)
        if "written" in told:
            self.written_s = self._now_s()
        self._is_started = self._is_started or "started" in told
        self._is_finished = self._is_finished or "finished" in told
        self.verified = told.get("verified", self.verified)

    def until_started(self) -> None:
        self._child.until(lambda: self._is_started, "Spark has started", START_S_MAX)

    def until_running(self, since_s: float) -> None:
        """Since then both queries have done a micro-batch with orders, and sums were written."""

        def run() -> bool:
            done = {one.query for one in self.batches if one.at_s > since_s}
            return done == self.read.keys() and self.written_s > since_s

        self._child.until(run, "both Spark queries read orders, and sums are written", START_S_MAX)

    def unfinished_batch(self) -> int:
        """Of sums, which the next driver has to do again; -1 if there is none."""
        return unfinished_batch(self._directory / "checkpoints" / "sums")

    def kill(self) -> None:
        """The driver, with -9, and with it everything that it started."""
        self._child.kill()

    def restart(self) -> None:
        self._child = self._start()

    def finish(self) -> None:
        self._child.say("finish")
        self._child.until(lambda: self._is_finished, "the Spark queries have read all", FINISH_S_MAX)
        self._child.kill()


def unfinished_batch(checkpoint: Path) -> int:
    """-1: every batch that was begun is finished."""
    begun, done = (
        max((int(path.name) for path in (checkpoint / kind).glob("[0-9]*")), default=-1)
        for kind in ("offsets", "commits")
    )
    return begun if begun > done else -1
