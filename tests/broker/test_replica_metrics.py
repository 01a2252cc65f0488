"""Every metric of replication that the rules name, on the pages of a node that runs."""

import asyncio
from urllib.request import urlopen

from headrace.client import Admin, NewTopic, Producer
from headrace.testing import Cluster

REPLICAS = "kafka_server_replicamanager_"
FETCHERS = "kafka_server_replicafetchermanager_"
SESSIONS = "kafka_server_fetchsessioncache_"
CONTROLLER = "kafka_controller_kafkacontroller_"

ALWAYS = [
    # Guarded offsets.
    "headrace_listoffsetsguardedpartitions",
    "headrace_listoffsetsnotavailable_total",
    "headrace_listoffsetsguardwindowms_bucket",
    "headrace_listoffsetsguardwindowms_count",
    "headrace_listoffsetsguardwindowms_sum",
    # Fetch sessions.
    SESSIONS + "numincrementalfetchsessions",
    SESSIONS + "numincrementalfetchpartitionscached",
    SESSIONS + "incrementalfetchsessionevictions_total",
    "headrace_fetchsessionerrors_total",
    "headrace_fetchpartitionsvisitedperrequest_sum",
    "headrace_fetchpartitionsreturnedperrequest_sum",
    # Followers.
    FETCHERS + "failedpartitionscount",
    FETCHERS + "maxlag",
    FETCHERS + "minfetchrate",
    FETCHERS + "deadthreadcount",
    "kafka_server_replicaalterlogdirsmanager_failedpartitionscount",
    # Leaders.
    REPLICAS + "underreplicatedpartitions",
    REPLICAS + "underminisrpartitioncount",
    REPLICAS + "atminisrpartitioncount",
    REPLICAS + "isrshrinks_total",
    REPLICAS + "isrexpands_total",
    REPLICAS + "failedisrupdates_total",
    REPLICAS + "leadercount",
    REPLICAS + "partitioncount",
    REPLICAS + "offlinereplicacount",
    REPLICAS + "reassigningpartitions",
    "headrace_metadatastoreunavailablems",
    "headrace_leaseremainingms",
    # The controller.
    CONTROLLER + "preferredreplicaimbalancecount",
    CONTROLLER + "offlinepartitionscount",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "headrace_nonintactleaderelections_total",
    "headrace_stepdowns_total",
    "headrace_stepdowntimeouts_total",
]

OF_PARTITIONS = [
    "kafka_server_fetcherlagmetrics_consumerlag",
    "kafka_cluster_partition_insyncreplicascount",
    "kafka_cluster_partition_laststableoffsetlag",
]


def names(url: str) -> set[str]:
    with urlopen(url, timeout=30) as answer:  # an address of this test
        lines = answer.read().decode().splitlines()
    return {line.split("{")[0].split(" ")[0] for line in lines if line and not line.startswith("#")}


async def test_every_metric_of_replication_is_there_from_the_start() -> None:
    async with Cluster(brokers=3) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 6, 3)])
        async with Producer(cluster.bootstrap) as producer:
            for index in range(6):
                await producer.send("t", b"v", partition=index)
        for broker in (1, 2, 3):
            url = cluster.metrics_url_of(broker)
            shown = await asyncio.to_thread(names, url)
            assert [name for name in ALWAYS if name not in shown] == []
            shown = await asyncio.to_thread(names, url + "/partitions")
            assert [name for name in OF_PARTITIONS if name not in shown] == []
