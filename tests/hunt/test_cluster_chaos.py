"""Three processes killed, paused and stopped under load, for minutes, each time on a new cluster."""

from pathlib import Path

import pytest

from tests.cluster.chaos import play
from tests.cluster.mischief import Mischief
from tests.hunt.budget import rounds
from tests.servers.cluster import running_cluster

SECONDS_PER_ROUND = 60.0


@pytest.mark.hunt
def test_no_mischief_breaks_a_promise(tmp_path: Path) -> None:
    for number, random in enumerate(rounds()):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        with running_cluster(scratch / "cluster") as cluster:
            play(cluster, Mischief(cluster, random), SECONDS_PER_ROUND, scratch)
