"""Topic to table and topic to topic, each row once, for minutes: whoever dies or is paused, and whenever."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from random import Random

import pytest

from tests.hunt.budget import PIPELINE_MINUTES, rounds, seed
from tests.hunt.pipeline import KILL_AT, ROOT, Pipeline, Wrong, in_turn, play
from tests.servers.cluster import HeadraceCluster, running_cluster
from tests.servers.spark import standalone
from tests.spark.jvm.conftest import WORKERS

SECONDS_PER_ROUND = 240.0
CORES_PER_WORKER = 2
DEEDS = [
    *(f"{kind} the {whom}" for kind in ("kill", "pause") for whom in ("driver", "executor", "leader", "coordinator")),
    *(f"{KILL_AT}{place}" for place in ("writing", "before-commit", "after-commit")),
]


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """For Spark's processes on all machines."""
    known = filter(None, [os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(WORKERS), str(ROOT), *known]))


@pytest.mark.hunt
@pytest.mark.usefixtures("paths")
def test_table_and_topic_equal_the_input(tmp_path: Path) -> None:
    with (
        running_cluster(tmp_path / "cluster") as cluster,
        standalone(tmp_path / "spark", CORES_PER_WORKER) as master,
    ):
        deeds = None
        for number, random in enumerate(rounds(PIPELINE_MINUTES)):
            deeds = deeds or in_turn(DEEDS, random)
            pipeline = Pipeline(cluster, master, tmp_path / "spark", tmp_path / f"round-{number}", random)
            sent = play(pipeline, cluster.bootstrap, deeds, after(SECONDS_PER_ROUND))
            told = ", ".join(f"{times} x {deed}" for deed, times in sorted(pipeline.done.items()))
            print(f"{sent} rows, each there once; {told}; {pipeline.failures} drivers failed and were started again")


@pytest.mark.hunt
@pytest.mark.usefixtures("paths")
def test_brokers_that_forget_what_was_committed_are_found(tmp_path: Path) -> None:
    random = Random(seed())
    with forgetful_cluster(tmp_path / "cluster") as cluster:
        pipeline = Pipeline(cluster, "local[2]", tmp_path, tmp_path / "forgetful", random)
        with pytest.raises(Wrong, match=r"the topic: 0 rows lost \[\], [1-9][0-9]* doubled") as found:
            play(pipeline, cluster.bootstrap, repeat(f"{KILL_AT}after-commit"), lambda: bool(pipeline.done))
    print(f"found: {found.value}")


def after(seconds: float) -> Callable[[], bool]:
    end_s = time.monotonic() + seconds
    return lambda: time.monotonic() > end_s


@contextmanager
def forgetful_cluster(directory: Path) -> Iterator[HeadraceCluster]:
    cluster = HeadraceCluster(directory, f"sqlite:{directory / 'metadata.db'}")
    for node in cluster.nodes.values():
        node.command = [sys.executable, "-m", "tests.hunt.forgetful_node", *node.command[1:]]
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
