"""Runs of one query, each with a process of its own that commits, against a broker in this process."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from headrace.spark.door import door
from headrace.spark.driver_claims import DriverClaims
from headrace.testing import Cluster
from tests.spark.filling import make_topic
from tests.spark.sink_stage import SETTINGS, Query, Spark, spark

__all__ = ["Queries", "broker", "end", "processes", "query", "spark", "topic"]

Queries = Callable[..., Query]
names = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    with Cluster(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(broker: Cluster) -> str:
    name = f"t{next(names)}"
    make_topic(broker.bootstrap, name, 2)
    return name


class There(Query):
    """Commits in a process of its own."""

    def __init__(self, go_there: Callable[[], None], spark: Spark, run: str, given: dict[str, str], at: int, id_: str):
        super().__init__(spark, run, given, started_ms=at, query_id=id_)
        self._go_there = go_there

    def commit(self, messages: list[Any], batch_id: int) -> None:
        self._go_there()
        super().commit(messages, batch_id)


@pytest.fixture
def processes() -> dict[str, DriverClaims]:
    return {}


@pytest.fixture
def end(processes: dict[str, DriverClaims]) -> Callable[[str], None]:
    """Of a process that commits."""
    return lambda name: door().run(processes.pop(name).close())


@pytest.fixture
def query(
    broker: Cluster, topic: str, spark: Spark, processes: dict[str, DriverClaims], monkeypatch: pytest.MonkeyPatch
) -> Queries:
    """Each run has a process of its own that commits."""
    current = [""]
    monkeypatch.setattr(
        "headrace.spark.committing.claims_of",
        lambda at: processes.setdefault(current[0], at.call(DriverClaims)),
    )

    def run(name: str, *, started_ms: int = 1_000, process: str | None = None, **options: str) -> Query:
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": topic,
            "checkpointLocation": f"/checkpoints/{topic}",
            **options,
        }
        at = process or name
        return There(lambda: current.__setitem__(0, at), spark, name, given, started_ms, f"query-{topic}")

    return run
