"""Whatever goes wrong with tasks and drivers, each batch is in the topic once: a search through random histories."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client import Fenced, TransactionFailed
from headrace.spark import committing
from headrace.spark.driver_claims import DriverClaims, NewerDriver
from headrace.testing import Cluster
from tests.spark.filling import make_topic
from tests.spark.sink_stage import SETTINGS, Query, Spark, batches, readable, spark

__all__ = ["spark"]

BATCHES, TASKS = 6, 2


class Crash(Exception):
    """Of a task, or of a driver."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(settings=SETTINGS) as running:
        make_topic(running.bootstrap, "t", 2)
        yield running


class Run:
    """A driver on the checkpoint that all runs share. It may be alive still when the next one begins."""

    def __init__(self, number: int, chance: random.Random, query: Query) -> None:
        self.claims: DriverClaims | None = None
        self._number = number
        self._chance = chance
        self._query = query

    def drive(self, batch_id: int) -> None:
        """One batch. Crash, or NewerDriver: the run is over."""
        messages: list[Any] = []
        for task in range(TASKS):
            for _ in range(self._chance.choice((0, 0, 1))):
                self._fail(batch_id, task)
            messages.append(self._query.task(batch_id, task, b"%d.%d" % (batch_id, task)))
        if self._chance.random() < 0.15:
            raise Crash
        try:
            self._query.commit(messages, batch_id)
        except NewerDriver:
            self._query.sink().abort([*messages, None], batch_id)
            raise
        if self._chance.random() < 0.3:
            if self._chance.random() < 0.5:
                self._query.sink().abort(list(messages), batch_id)  # as when the answer was lost
            raise Crash

    def _fail(self, batch_id: int, task: int) -> None:
        """An attempt that writes, and then fails or is not heard of again."""
        if self._chance.random() < 0.5:
            self._query.task(batch_id, task, b"%d.%d lost" % (batch_id, task))
            return

        def failing() -> Iterator[Any]:
            yield from batches([b"%d.%d failed" % (batch_id, task)])
            raise Crash

        self._query.task(batch_id, task)
        try:
            self._query.sink().write(failing())
        except Crash:
            return


@pytest.mark.parametrize("seed", range(4))
def test_each_batch_is_there_once(seed: int, cluster: Cluster, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "t", "checkpointLocation": "/c"}
    runs: list[Run] = []
    current: list[Run] = []

    def claims_of(at: Any) -> DriverClaims:
        run = current[0]
        run.claims = run.claims or at.call(DriverClaims)
        return run.claims

    monkeypatch.setattr(committing, "claims_of", claims_of)
    logged = 0  # Spark's own log of batches that are done
    number = 0
    while logged < BATCHES:
        if not runs or chance.random() < 0.1:
            number += 1
            runs.append(Run(number, chance, Query(spark, f"run{number}", given, started_ms=number)))
        run = chance.choice(runs)
        current[:] = [run]
        try:
            run.drive(logged)
            logged += 1
        except (Crash, NewerDriver, Fenced, TransactionFailed):
            runs.remove(run)
    # What nobody has committed times out in the end; here the next batch ends it.
    last = Query(spark, "last", given, started_ms=number + 1)
    current[:] = [Run(0, chance, last)]
    last.commit([last.task(BATCHES, 0)], BATCHES)
    expected = [b"%d.%d" % (batch, task) for batch in range(BATCHES) for task in range(TASKS)]
    assert readable(cluster.bootstrap) == sorted(expected)
