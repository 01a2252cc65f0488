"""What a fetch without news costs is measured in a session that tells of news when there is some."""

from pathlib import Path

from demo.idle import measure
from demo.plan import QUIET
from demo.proofs.brokers import IDLE_BYTES_MAX
from tests.servers.cluster import running_cluster

PARTITIONS = 20


def test_an_idle_fetch_names_no_partition_and_one_with_news_names_that_one(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "node", size=1) as cluster:
        cluster.create_topic(QUIET, PARTITIONS, copies=1)
        told = measure(cluster, 1)
    assert (told.partitions, told.named) == (PARTITIONS, 1)
    assert max(told.idle_request, told.idle_answer) <= IDLE_BYTES_MAX < min(told.full_request, told.full_answer)
