"""Mutated frames for minutes on end: the broker serves another client throughout."""

from pathlib import Path

import pytest

from tests.cluster import hostile
from tests.cluster.wellbehaved import WellBehaved
from tests.hunt.budget import rounds
from tests.servers.choice import running_broker

FRAMES_PER_ROUND = 250
RSS_BYTES_MAX = 400 << 20


@pytest.mark.hunt
def test_no_mutated_frame_harms_anybody_else(tmp_path: Path) -> None:
    frames = 0
    with running_broker(tmp_path / "broker") as broker, WellBehaved(broker.bootstrap) as client:
        for random in rounds():
            mutated = [hostile.framed(hostile.mutated_frame(random)) for _ in range(FRAMES_PER_ROUND)]
            hostile.send_and_wait(broker.port, mutated, wait_s_max=0.5)
            client.is_served(1)
            frames += len(mutated)
        rss_bytes = broker.rss_bytes()
        print(
            f"{frames} mutated frames; {client.rounds} round trips of another client,"
            f" the slowest {client.slowest_s * 1000:.0f} ms; {rss_bytes >> 20} MB in the end"
        )
        assert rss_bytes < RSS_BYTES_MAX
