"""The side port: names by Kafka's rule, text that Prometheus can read, and whether the node is ready."""

import asyncio
import re

import pytest

from headrace.broker.metrics import Family, Histogram, Sample, labelled
from headrace.net.peer import PeerLost
from headrace.wire.messages.fetch import FetchResponse
from tests.broker.support import TOPIC, Served, World, fetch_request, records_of, serving, until
from tests.net.loops import on_both_loops

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
TYPE_LINE = re.compile(rf"# TYPE ({NAME}) (counter|gauge|summary|histogram|untyped)")
SAMPLE_LINE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
SUFFIXES = {"summary": ("_sum", "_count"), "histogram": ("_bucket", "_sum", "_count")}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


def parse_labels(text: str | None) -> tuple[tuple[str, str], ...]:
    labels, at = [], 0
    while text and at < len(text):
        found = LABEL.match(text, at)
        assert found, f"no label at {text[at:]!r}"
        labels.append((found[1], unescaped(found[2])))
        at = found.end()
    assert len({name for name, _ in labels}) == len(labels), f"a label twice in {text!r}"
    return tuple(labels)


def parse(text: str) -> tuple[dict[str, str], Samples]:
    """The types of the families, and the samples. Strict: everything the format forbids is an error."""
    assert text.endswith("\n")
    types: dict[str, str] = {}
    samples: Samples = {}
    family = ""
    for line in text[:-1].split("\n"):
        if line.startswith("#"):
            declared = TYPE_LINE.fullmatch(line)
            assert declared, line
            family, kind = declared.groups()
            assert family not in types, f"{family} is declared twice"
            types[family] = kind
            continue
        found = SAMPLE_LINE.fullmatch(line)
        assert found, line
        name = found[1]
        allowed = [family + suffix for suffix in SUFFIXES.get(types[family], ("",))]
        assert name in allowed, f"{name} is no sample of {family}"
        assert (types[family] == "counter") == name.endswith("_total"), line
        key = name, parse_labels(found[2])
        assert key not in samples, f"{line} is there twice"
        samples[key] = float(found[3])
    return types, samples


async def scrape(served: Served, path: str = "/metrics") -> Samples:
    status, text = await served.page(path)
    assert status == 200
    return parse(text)[1]


def ours(bean: str) -> str:
    """`kafka.server:type=T,name=N` by the rule of the documentation."""
    domain, _, rest = bean.partition(":")
    properties = dict(item.split("=") for item in rest.split(","))
    name = properties["name"]
    name = name.removesuffix("PerSec") + "_total" if name.endswith("PerSec") else name
    return "_".join((domain, properties["type"], name)).lower().replace(".", "_").replace("-", "_")


BEANS = [
    "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
    "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec",
    "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
    "kafka.server:type=BrokerTopicMetrics,name=TotalProduceRequestsPerSec",
    "kafka.server:type=BrokerTopicMetrics,name=TotalFetchRequestsPerSec",
    "kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec",
    "kafka.server:type=BrokerTopicMetrics,name=FailedFetchRequestsPerSec",
    "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec",
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag",
    "kafka.server:type=ReplicaFetcherManager,name=MinFetchRate",
    "kafka.server:type=ReplicaFetcherManager,name=DeadThreadCount",
    "kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount",
    "kafka.server:type=ReplicaAlterLogDirsManager,name=FailedPartitionsCount",
    "kafka.network:type=RequestMetrics,name=RequestsPerSec",
    "kafka.server:type=ReplicaManager,name=PartitionCount",
    "kafka.server:type=ReplicaManager,name=LeaderCount",
    "kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
    "kafka.server:type=ReplicaManager,name=ProducerIdCount",
    "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
    "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
    "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount",
    "kafka.server:type=ReplicaManager,name=ReassigningPartitions",
    "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
    "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec",
    "kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec",
    "kafka.controller:type=KafkaController,name=ActiveControllerCount",
    "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
    "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount",
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
    "kafka.log:type=LogCleaner,name=cleaner-recopy-percent",
    "kafka.log:type=LogCleaner,name=max-clean-time-secs",
    "kafka.log:type=LogCleaner,name=max-buffer-utilization-percent",
    "kafka.log:type=LogCleaner,name=max-compaction-delay-secs",
    "kafka.log:type=LogCleaner,name=DeadThreadCount",
    "kafka.log:type=LogCleanerManager,name=max-dirty-percent",
    "kafka.log:type=LogCleanerManager,name=time-since-last-run-ms",
    "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count",
    "kafka.log:type=LogCleanerManager,name=uncleanable-bytes",
    "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount",
    "kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs",
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached",
    "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
    "kafka.server:type=socket-server-metrics,name=connection-count",
    *(
        f"kafka.coordinator.group:type=GroupMetadataManager,name=Num{what}"
        for what in ("Offsets", "Groups", "GroupsEmpty", "GroupsPreparingRebalance", "GroupsCompletingRebalance")
    ),
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsStable",
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsDead",
    *(
        f"kafka.server:type=group-coordinator-metrics,name={what}"
        for what in ("partition-load-time-max", "partition-load-time-avg")
    ),
    *(
        f"kafka.server:type=group-coordinator-metrics,name={what}PerSec"
        for what in ("offset-commit", "offset-expiration", "offset-deletion", "group-rebalance")
    ),
    "kafka.server:type=group-coordinator-metrics,name=group-completed-rebalancePerSec",
    "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=UnknownDestinationQueueSize",
    "kafka.server:type=transaction-coordinator-metrics,name=partition-load-time-max",
    "kafka.server:type=transaction-coordinator-metrics,name=partition-load-time-avg",
]


@on_both_loops
async def test_every_name_is_kafkas_by_the_rule_or_begins_with_headrace() -> None:
    async with serving() as (served, _):
        status, text = await served.page("/metrics")
        types, _ = parse(text)
        assert status == 200
        assert {name for name in types if not name.startswith("headrace_")} == set(map(ours, BEANS))


async def test_traffic_is_counted() -> None:
    async with serving(partitions=2) as (served, client):
        batch = records_of([b"a", b"b", b"c"])
        await client.produce(bytearray(batch))
        await client.produce(topic="nobody")
        await client.produce(records_of(control=True))
        await client.fetch(0)
        await client.fetch(99)
        now = await scrape(served)
        metrics = "kafka_server_brokertopicmetrics_"
        assert now[metrics + "bytesin_total", ()] == len(batch)
        assert now[metrics + "bytesout_total", ()] == len(batch)
        assert now[metrics + "messagesin_total", ()] == 3
        assert now[metrics + "totalproducerequests_total", ()] == 3
        assert now[metrics + "totalfetchrequests_total", ()] == 2
        assert now[metrics + "failedproducerequests_total", (("code", "87"),)] == 1
        assert now[metrics + "failedfetchrequests_total", ()] == 1
        requests = "kafka_network_requestmetrics_requests_total"
        assert now[requests, (("request", "Produce"),)] == 3
        assert now[requests, (("request", "CreateTopics"),)] == 1
        assert now["headrace_batches_in_total", ()] == 1
        assert now["kafka_server_replicamanager_partitioncount", ()] == 2
        assert now["kafka_server_replicamanager_leadercount", ()] == 2
        assert now["kafka_server_socket_server_metrics_connection_count", ()] == 1


async def test_records_that_failed_after_they_were_accepted_are_counted_as_failed() -> None:
    async with serving() as (served, client):
        served.world.memory.fail("write", "*.log", 5)
        assert (await client.produce()).error_code == 56
        now = await scrape(served)
        assert now["kafka_server_brokertopicmetrics_failedproducerequests_total", (("code", "56"),)] == 1


async def test_every_partition_is_on_a_page_of_its_own() -> None:
    async with serving(partitions=450) as (served, client):
        await client.produce(records_of([b"a", b"b"]), 449)
        now = await scrape(served, "/metrics/partitions")
        ends = {labels: value for (name, labels), value in now.items() if name == "kafka_log_log_logendoffset"}
        starts = {labels: value for (name, labels), value in now.items() if name == "kafka_log_log_logstartoffset"}
        assert len(ends) == len(starts) == 450
        assert ends[("topic", TOPIC), ("partition", "449")] == 2
        assert ends[("topic", TOPIC), ("partition", "0")] == 0


async def test_partitions_that_come_and_go_during_a_scrape_do_not_break_it() -> None:
    async with serving(partitions=450) as (served, client):
        scraping = asyncio.ensure_future(served.page("/metrics/partitions"))
        await client.create_topic("more", partitions=300)
        await client.delete_topic()
        status, text = await scraping
        assert status == 200
        parse(text)


def test_labels_are_escaped() -> None:
    text = Family("a_total", "counter", [Sample(labelled(x='quo"te', y="back\\slash", z="new\nline"), 1)]).text()
    assert list(parse(text)[1]) == [("a_total", (("x", 'quo"te'), ("y", "back\\slash"), ("z", "new\nline")))]


async def test_pages_that_do_not_exist_are_not_found() -> None:
    async with serving() as (served, _):
        for path in ("/", "/metrics/", "/nothing"):
            status, text = await served.page(path)
            assert (status, text.count("\n")) == (404, 1)
        assert (await served.page("/metrics?name=x"))[0] == 200


async def test_a_node_is_alive_before_it_is_ready() -> None:
    with World() as world:
        async with world.started() as served:
            await (await served.client()).create_topic()
        served = Served(world, world.node())
        world.offload.hold("metadata")
        starting = asyncio.ensure_future(served.node.start())
        # The pages come before the registration, so the first held job after them is what keeps the node starting.
        while not served.node.metrics_address:
            await until(lambda: served.node.metrics_address or world.offload.held("metadata"))
            if not served.node.metrics_address:
                world.offload.step("metadata")
        assert await served.page("/healthz") == (200, "ok\n")
        assert await served.page("/readyz") == (503, "starting\n")
        with pytest.raises(PeerLost):
            await served.client()
        world.offload.release("metadata")
        await starting
        assert await served.page("/readyz") == (200, "ready\n")
        assert await (await served.client()).offset() == 0
        await served.node.stop()


async def test_waiting_fetches_and_sessions_are_seen() -> None:
    async with serving() as (served, client):
        request = fetch_request(0)
        request.session_epoch = 0
        answer = await client.ask(request, FetchResponse, 12)
        assert answer.session_id
        request.session_id, request.session_epoch = answer.session_id + 1, 1
        await client.ask(request, FetchResponse, 12)
        now = await scrape(served)
        assert now["kafka_server_fetchsessioncache_numincrementalfetchsessions", ()] == 1
        assert now["kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", ()] == 1
        assert now["headrace_fetchsessionerrors_total", (("code", "70"),)] == 1


async def test_a_store_that_is_silent_makes_a_node_not_ready_but_healthy() -> None:
    async with serving() as (served, client):
        assert (await served.page("/readyz"))[0] == 200
        broker = served.node.broker
        assert broker is not None and broker.controller.registration.lease is not None
        lease = broker.controller.registration.lease
        lease.beat_sent_ms -= 6_000
        status, text = await served.page("/readyz")
        assert status == 503 and "the metadata store has not answered for 6000 ms: data is served" in text
        now = await scrape(served)
        assert now["headrace_metadatastoreunavailablems", ()] == 6_000
        assert now["headrace_leaseremainingms", ()] == 9_000 - 6_000 - 562
        lease.beat_sent_ms -= 6_000
        assert "latest offsets are not told" in (await served.page("/readyz"))[1]
        assert (await served.page("/healthz"))[0] == 200
        assert (await client.produce()).error_code == 0


async def test_what_this_node_leads_and_decides_is_counted() -> None:
    async with serving(partitions=3) as (served, _):
        now = await scrape(served)
        assert now["kafka_controller_kafkacontroller_activecontrollercount", ()] == 1
        for name in ("offlinepartitionscount", "preferredreplicaimbalancecount"):
            assert now["kafka_controller_kafkacontroller_" + name, ()] == 0
        assert now["kafka_server_replicamanager_underreplicatedpartitions", ()] == 0
        assert now["headrace_listoffsetsguardedpartitions", ()] == 0
        series = await scrape(served, "/metrics/partitions")
        in_sync = [v for (name, _), v in series.items() if name == "kafka_cluster_partition_insyncreplicascount"]
        assert in_sync == [1, 1, 1]


def test_a_histogram_counts_each_value_in_every_bucket_that_holds_it() -> None:
    histogram = Histogram(1, 10)
    for value in (0, 1, 2, 10, 11, 500):
        histogram.add(value)
    assert histogram.family("h").text().splitlines() == [
        "# TYPE h histogram",
        'h_bucket{le="1"} 2',
        'h_bucket{le="10"} 4',
        'h_bucket{le="+Inf"} 6',
        "h_sum 524",
        "h_count 6",
    ]
