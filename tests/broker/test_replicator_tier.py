"""Followers whose leader has older records in the tier alone."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from headrace.broker.tier_following import TierFollowing
from headrace.core.epochs import EpochEntry
from headrace.storage.memory_files import MemoryFiles
from headrace.storage.opening import open_log
from headrace.storage.shared import Shared
from headrace.tier.memory import MemoryStore, Mishap
from tests.broker.following import TOPIC_ID, Following, following
from tests.broker.remote import FINISHED_MS, Remote
from tests.net.loops import until

BEHIND = {"follower.fetch.last.tiered.offset.enable": "true"}
TIERED = {"remote.storage.enable": "true"}


@asynccontextmanager
async def tiered(
    settings: Mapping[str, str] | None = None, partitions: int = 1, files: MemoryFiles | None = None
) -> AsyncIterator[tuple[Following, Remote]]:
    """The leader's log goes from 0 to 200 in batches of ten, of epochs 0, 1 from 60 on, 2 from 150 on."""
    async with following(partitions, settings=settings, topic=TIERED, files=files) as bench:
        bench.image.cluster_id = "cluster"
        remote = Remote(bench.image, TOPIC_ID)
        bench.replicator.tier = remote.following
        led = bench.led()
        for offset in range(0, 200, 10):
            led.leader_epoch = 2 if offset >= 150 else 1 if offset >= 60 else 0
            led.append(10, producer=(7, 0, offset))
        yield bench, remote


def lead_from_tier(bench: Following, remote: Remote, local: int = 150, remote_end: int = 179, size: int = 30) -> None:
    led = bench.led()
    for base in range(0, remote_end + 1, size):
        remote.copy(led, base, min(base + size - 1, remote_end), publish=False)
    remote.publish(led)
    led.local_log_start = local


def first_fetches(bench: Following) -> list[int]:
    """The offsets of the partition in requests, each once."""
    asked = [a.fetch_offset for request in bench.leader.requests for t in request.topics for a in t.partitions]
    return list(dict.fromkeys(asked))


async def until_ends(bench: Following, offset: int) -> None:
    await until(lambda: bench[0].log_end_offset == offset)


async def test_t9_1_an_empty_follower_fetches_from_behind_the_last_tiered_offset() -> None:
    async with tiered(BEHIND) as (bench, remote):
        lead_from_tier(bench, remote)
        bench.follow(0, leader_epoch=2)
        await until_ends(bench, 200)
        assert first_fetches(bench)[:2] == [0, 180]
        partition = bench[0]
        assert (partition.log_start_offset, partition.local_log_start_offset) == (0, 180)
        assert partition.high_watermark == 200
        assert bench.content() == bench.led().bytes_from(180)
        assert partition.log.epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 60), EpochEntry(2, 150))


async def test_t9_2_by_default_it_copies_what_the_leader_has_on_its_disk() -> None:
    async with tiered() as (bench, remote):
        lead_from_tier(bench, remote)
        bench.follow(0, leader_epoch=2)
        await until_ends(bench, 200)
        assert first_fetches(bench)[:2] == [0, 150]
        assert (bench[0].log_start_offset, bench[0].local_log_start_offset) == (0, 150)
        assert bench.content() == bench.led().bytes_from(150)
        assert bench[0].log.epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 60), EpochEntry(2, 150))


async def test_t9_2_where_all_is_on_the_leaders_disk_the_tier_is_not_asked() -> None:
    async with tiered() as (bench, remote):
        lead_from_tier(bench, remote, local=0)
        bench.follow(0, leader_epoch=2)
        await bench.until_equal(0)
        assert remote.bucket.calls == {} and bench[0].local_log_start_offset == 0


async def test_t9_3_where_nothing_is_tiered_it_begins_at_the_log_start() -> None:
    async with tiered(BEHIND) as (bench, remote):
        led = bench.led()
        led.log_start = led.local_log_start = 40
        bench.follow(0, leader_epoch=2)
        await bench.until_equal(0)
        assert first_fetches(bench)[:2] == [0, 40] and remote.bucket.calls == {}
        assert (bench[0].log_start_offset, bench[0].local_log_start_offset) == (40, 40)


async def test_t9_4_it_tries_again_while_a_fresh_leader_does_not_know_what_is_tiered() -> None:
    async with tiered(BEHIND) as (bench, remote):
        lead_from_tier(bench, remote)
        led = bench.led()
        known, led.highest_remote = led.highest_remote, None
        bench.follow(0, leader_epoch=2)
        await until(lambda: remote.metrics.of("t").aux_errors >= 2)
        assert bench[0].log_end_offset == 0 and len(bench.replicator.failed) == 0
        led.highest_remote = known
        await until_ends(bench, 200)
        assert bench[0].local_log_start_offset == 180


async def test_t9_5_everything_tiered_is_no_reason_to_wait_for_ever() -> None:
    async with tiered(BEHIND) as (bench, remote):
        lead_from_tier(bench, remote, remote_end=199)
        bench.follow(0, leader_epoch=2)
        await until_ends(bench, 200)
        assert bench[0].local_log_start_offset == 200 and bench[0].high_watermark == 200
        bench.produce()
        await until_ends(bench, 201)
        assert bench.content() == bench.led().bytes_from(200)


async def test_t9_6_a_follower_with_records_begins_where_the_leaders_disk_does() -> None:
    async with tiered(BEHIND) as (bench, remote):
        led = bench.led()
        led.log_end, led.batches, rest = 10, led.batches[:1], led.batches[1:]
        bench.follow(0, leader_epoch=2)
        await until_ends(bench, 10)
        led.batches += rest
        led.log_end = led.high_watermark = 200
        lead_from_tier(bench, remote)
        bench.leader.changed()
        await until_ends(bench, 200)
        assert bench[0].local_log_start_offset == 150


async def test_an_answer_that_the_leaders_retention_has_overtaken_is_asked_for_again() -> None:
    """Between the answer and the first fetch everything up to 190 leaves the leader's disk."""
    async with tiered(BEHIND) as (bench, remote):
        lead_from_tier(bench, remote)
        led = bench.led()

        def overtake() -> None:
            if len(bench.leader.offsets_asked) == 2:
                remote.copy(led, 180, 189)
                led.local_log_start = 190

        bench.leader.before_offsets = overtake
        bench.follow(0, leader_epoch=2)
        await until_ends(bench, 200)
        assert first_fetches(bench)[:3] == [0, 180, 190]
        assert bench[0].local_log_start_offset == 190


async def test_out_of_range_begins_behind_the_tier_too() -> None:
    async with tiered(BEHIND) as (bench, remote):
        lead_from_tier(bench, remote)
        bench.led().log_start = 30
        bench.follow(0, leader_epoch=2)
        await until_ends(bench, 200)
        assert first_fetches(bench)[:2] == [0, 180]
        assert (bench[0].log_start_offset, bench[0].local_log_start_offset) == (30, 180)


async def test_producers_are_known_from_the_tier_before_the_first_fetch() -> None:
    async with tiered(BEHIND) as (bench, remote):
        lead_from_tier(bench, remote, remote_end=199)
        bench.follow(0, leader_epoch=2)
        await until_ends(bench, 200)
        producer = bench[0].log.producers.get(7)
        assert producer is not None and producer.batches[-1].last_sequence == 199


async def test_what_was_taken_over_survives_a_restart() -> None:
    files = MemoryFiles()
    async with tiered(BEHIND, files=files) as (bench, remote):
        lead_from_tier(bench, remote, remote_end=199)
        bench.follow(0, leader_epoch=2)
        await until_ends(bench, 200)
        log = bench[0].log
        again = open_log(Shared(files), log.directory, TOPIC_ID, log.config, remote_log_start=0)
        assert again.log_end_offset == 200 and again.local_log_start_offset == 200
        assert again.epochs.entries == log.epochs.entries
        assert [number for number, _ in again.producers.items()] == [7]
        assert again.local.since_ms == FINISHED_MS and not again.local.is_full


async def test_a_segment_of_another_history_is_not_taken_over() -> None:
    """An unclean election: the manifest still names a segment that goes on where this leader's epoch 1 ended."""
    async with tiered() as (bench, remote):
        led = bench.led()
        lead_from_tier(bench, remote, local=150, remote_end=149)
        other = led.epochs
        led.epochs = type(other)([(0, 0), (1, 60), (3, 140)])
        divergent = remote.copy(led, 120, 169, publish=False)
        led.epochs = other
        remote.publish(led)
        led.local_log_start = 130
        assert divergent.end_offset == 169
        bench.follow(0, leader_epoch=2)
        await until_ends(bench, 200)
        assert first_fetches(bench)[:2] == [0, 150]
        assert bench[0].log.epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 60), EpochEntry(2, 150))


async def test_a_store_that_fails_delays_and_never_fails_the_partition() -> None:
    async with tiered(BEHIND) as (bench, remote):
        lead_from_tier(bench, remote)
        remote.bucket.mishap = lambda *_: Mishap(fails=True)
        bench.follow(0, leader_epoch=2)
        await until(lambda: remote.metrics.of("t").aux_errors >= 3)
        assert len(bench.replicator.failed) == 0 and bench.lines.errors == []
        remote.bucket.mishap = lambda *_: Mishap()
        await until_ends(bench, 200)


async def test_a_slow_store_holds_up_no_other_partition() -> None:
    async with tiered(BEHIND, partitions=2) as (bench, remote):
        lead_from_tier(bench, remote)
        gate = asyncio.Event()

        async def sleep_ms(_: int) -> None:
            await gate.wait()

        remote.bucket.mishap = lambda *_: Mishap(delay_ms=1)
        store = MemoryStore(remote.bucket, MemoryFiles(), sleep_ms)
        bench.replicator.tier = TierFollowing(bench.image, store, remote.metrics)
        bench.follow(0, 1, leader_epoch=2)
        bench.produce(1, 5)
        await bench.until_equal(1)
        assert bench[0].log_end_offset == 0
        gate.set()
        await until_ends(bench, 200)


async def test_a_missing_manifest_and_an_unknown_pointer_are_waited_for() -> None:
    async with tiered(BEHIND) as (bench, remote):
        lead_from_tier(bench, remote)
        pointers = dict(bench.image.tier)
        bench.image.tier.clear()
        bench.follow(0, leader_epoch=2)
        await until(lambda: remote.metrics.of("t").aux_errors >= 1)
        objects = dict(remote.bucket.objects)
        remote.bucket.objects.clear()
        bench.image.tier.update(pointers)
        before = remote.metrics.of("t").aux_errors
        await until(lambda: remote.metrics.of("t").aux_errors > before)
        remote.bucket.objects.update(objects)
        await until_ends(bench, 200)


async def test_a_node_without_a_tier_waits_and_says_so_once() -> None:
    async with tiered() as (bench, remote):
        lead_from_tier(bench, remote)
        bench.replicator.tier = None
        bench.follow(0, leader_epoch=2)
        await until(lambda: len(bench.leader.requests) >= 3)
        assert len(bench.replicator.failed) == 0 and bench[0].log_end_offset == 0


async def test_a_leader_epoch_that_is_fenced_meanwhile_ends_it() -> None:
    async with tiered(BEHIND) as (bench, remote):
        lead_from_tier(bench, remote)

        def elect() -> None:
            bench.led().leader_epoch = 3

        bench.leader.before_offsets = elect
        bench.follow(0, leader_epoch=2)
        await until(lambda: bench.failed_indexes == [0])
        assert bench.lines.errors == []
        bench.leader.before_offsets = lambda: None
        bench.follow(0, leader_epoch=3)
        await until_ends(bench, 200)


async def test_one_that_is_led_here_meanwhile_is_left_alone() -> None:
    async with tiered(BEHIND) as (bench, remote):
        lead_from_tier(bench, remote)
        bench.leader.before_offsets = lambda: bench.replicator.stop(bench[0])
        bench.follow(0, leader_epoch=2)
        await until(lambda: not bench.replicator.fetchers)
        assert bench[0].log_end_offset == 0


async def test_monitoring_counts_what_was_asked_of_the_tier_and_what_went_wrong() -> None:
    async with tiered(BEHIND) as (bench, remote):
        lead_from_tier(bench, remote)
        remote.bucket.mishap = lambda *_: Mishap(fails=remote.metrics.of("t").aux_requests < 2)
        bench.follow(0, leader_epoch=2)
        await until_ends(bench, 200)
        told = "".join(family.text() for family in remote.metrics.families())
        name = "kafka_server_brokertopicmetrics_buildremotelogauxstate"
        assert name + 'requests_total{topic="t"} 2\n' in told and name + 'errors_total{topic="t"} 1\n' in told
