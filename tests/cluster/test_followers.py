"""Replicas of three nodes become equal, whatever happened to them. Scenarios T5 and T461, end to end."""

import asyncio
import errno

import pytest

from headrace.client import Admin, Consumer
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.storage.memory_files import Fault
from tests.cluster.replicas import TOPIC, Replicas, play

FOR_EVER = 1 << 60


def test_what_is_acknowledged_is_on_every_replica() -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create(6)
        for index in range(6):
            assert await replicas.produce(*[b"%d" % n for n in range(20)], partition=index)
        await replicas.until_equal(*range(6))

    play(scenario)


def test_a_follower_that_was_away_catches_up() -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create(2, segment_bytes="1000")
        away = 1 + replicas.leader_of() % 3
        assert await replicas.produce(b"before")
        replicas.kill(away)
        for number in range(30):
            assert await replicas.produce(b"meanwhile %d" % number)
        replicas.start(away)
        await replicas.until_equal(0, 1)
        assert len(replicas.at(away).log.segments) > 1

    play(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_t5_1_after_two_failovers_the_logs_are_equal_byte_by_byte(seed: int) -> None:
    """KIP-279: each of two leaders in turn has records that nobody else got, at the same offsets."""

    async def scenario(replicas: Replicas) -> None:
        await replicas.create(1)
        assert await replicas.produce(b"common 1", b"common 2")
        await replicas.until_equal()
        for round_ in range(2):
            leader = replicas.leader_of()
            others = [number for number in (1, 2, 3) if number != leader]
            for other in others:
                replicas.cut(leader, other)
            assert await replicas.produce(*[b"alone %d %d" % (round_, n) for n in range(3 - round_)], acks=1)
            replicas.kill(leader)
            await replicas.until_led_by_another(leader)
            replicas.heal()
            assert await replicas.produce(b"after %d" % round_)
            replicas.start(leader)
            await replicas.world.until_serving()
        assert await replicas.produce(b"last")
        await replicas.until_equal()
        content = replicas.content(1)
        assert b"alone" not in content and b"after 0" in content and b"after 1" in content and b"common" in content

    play(scenario, seed=seed)


def test_t5_2_elections_without_writes_end_in_agreement() -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create(1)
        assert await replicas.produce(b"common")
        await replicas.until_equal()
        for _ in range(4):
            leader = replicas.leader_of()
            replicas.kill(leader)
            await replicas.until_led_by_another(leader)
            replicas.start(leader)
            await replicas.world.until_serving()
            await replicas.until(lambda: all(len(replicas.replicator(n).failed) == 0 for n in (1, 2, 3)))
        await replicas.until_equal()
        assert await replicas.produce(b"last")
        await replicas.until_equal()

    play(scenario)


def test_t5_4_an_old_leader_that_comes_back_shows_nothing_that_it_has_to_cut() -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create(1)
        assert await replicas.produce(b"common")
        seen: dict[int, bytes] = {}

        async def watch() -> None:
            async with Consumer(replicas.world.bootstrap, outside=replicas.outside, max_wait_ms=100) as consumer:
                consumer.assign([TopicPartition(TOPIC, 0)])
                while True:
                    try:
                        records = await consumer.poll(200)
                    except KafkaError:
                        continue
                    for record in records:
                        assert seen.setdefault(record.offset, record.value or b"") == record.value

        watching = asyncio.ensure_future(watch())
        leader = replicas.leader_of()
        others = [number for number in (1, 2, 3) if number != leader]
        for other in others:
            replicas.cut(leader, other)
        for value in (b"never committed 1", b"never committed 2"):  # in a batch each: the others write one record there
            assert await replicas.produce(value, acks=1)
        await asyncio.sleep(1)
        replicas.kill(leader)
        await replicas.until_led_by_another(leader)
        replicas.heal()
        assert await replicas.produce(b"committed")
        replicas.start(leader)
        await replicas.until_equal()
        # It leads again, with what the others committed.
        for other in others:
            replicas.kill(other)
        await replicas.until(lambda: replicas.leader_of() == leader)
        for other in others:
            replicas.start(other)
        assert await replicas.produce(b"last")
        await replicas.until_equal()
        await replicas.until(lambda: len(seen) == 3)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert list(seen.values()) == [b"common", b"committed", b"last"]

    play(scenario)


def test_a_stop_keeps_apart_what_is_written_and_what_is_committed() -> None:
    """After a clean stop of a leader its uncommitted records are not taken for committed ones."""

    async def scenario(replicas: Replicas) -> None:
        await replicas.create(1)
        assert await replicas.produce(b"common")
        await replicas.until_equal()
        leader = replicas.leader_of()
        follower = next(number for number in (1, 2, 3) if number != leader)
        for other in (1, 2, 3):
            if other != leader:
                replicas.cut(leader, other)
        assert await replicas.produce(b"never committed", acks=1)
        stopping = replicas.world.nodes[leader - 1]
        await stopping.stop()
        await replicas.until_led_by_another(leader)
        replicas.heal()
        name = TopicPartition(TOPIC, 0)
        replication = stopping.machine.files.read(f"/data{leader}/logs/replication-offset-checkpoint").decode()
        assert f"{name.topic} {name.partition} 1\n" in replication
        replicas.start(leader)
        assert await replicas.produce(b"committed")
        await replicas.until_equal()
        assert b"never" not in replicas.content(follower)

    play(scenario)


def test_t461_one_partitions_disk_error_is_nobody_elses_trouble() -> None:
    """T461-1, -2, -6 and -9: the others go on, and the next leader epoch brings it back."""

    async def scenario(replicas: Replicas) -> None:
        await replicas.create(12)
        victim = 1 + replicas.leader_of(0) % 3
        files = replicas.world.nodes[victim - 1].machine.files
        fault = files.fail("write", f"*/{TOPIC}-0/*.log", errno.EIO, times=FOR_EVER)
        for index in range(12):
            assert await replicas.produce(b"1", partition=index)
        failed = replicas.replicator(victim).failed
        await replicas.until(lambda: len(failed) == 1)
        await replicas.until_equal(*range(1, 12))
        for index in range(12):
            # Without the one that failed, which leaves the ISR by its lag.
            assert await replicas.produce(b"2", partition=index)
        await replicas.until_equal(*range(1, 12))
        assert [str(partition) for partition, _ in failed.items()] == [f"{TOPIC}-0"]
        files.faults.remove(fault)
        assert len(failed) == 1  # the disk is well again, but nothing is tried in this leader epoch
        leader = replicas.leader_of(0)
        replicas.kill(leader)
        await replicas.until(lambda: replicas.leader_of(0) not in (0, leader))
        replicas.start(leader)
        await replicas.until_equal(*range(12))
        assert len(failed) == 0

    play(scenario)


def failing_follower(replicas: Replicas, index: int = 0) -> tuple[int, Fault]:
    """A node that follows the partition and cannot write to it any more."""
    victim = 1 + replicas.leader_of(index) % 3
    files = replicas.world.nodes[victim - 1].machine.files
    return victim, files.fail("write", f"*/{TOPIC}-{index}/*.log", errno.EIO, times=FOR_EVER)


def test_t461_3_a_deleted_topic_takes_its_failures_along() -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create(2)
        victim, _ = failing_follower(replicas)
        assert await replicas.produce(b"1", acks=1)
        failed = replicas.replicator(victim).failed
        await replicas.until(lambda: len(failed) == 1)
        async with Admin(replicas.world.bootstrap, outside=replicas.outside) as admin:
            await admin.delete_topics([TOPIC])
        await replicas.until(lambda: len(failed) == 0)

    play(scenario)


def test_t461_4_a_failed_one_that_is_elected_leads() -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create(1)
        assert await replicas.produce(b"committed")
        await replicas.until_equal()
        victim, fault = failing_follower(replicas)
        assert await replicas.produce(b"not yet committed", acks=1)
        failed = replicas.replicator(victim).failed
        await replicas.until(lambda: len(failed) == 1)
        replicas.world.nodes[victim - 1].machine.files.faults.remove(fault)
        others = [number for number in (1, 2, 3) if number != victim]
        for other in others:
            replicas.kill(other)
        await replicas.until(lambda: replicas.leader_of() == victim)
        assert len(failed) == 0
        for other in others:
            replicas.start(other)
        assert await replicas.produce(b"last")
        await replicas.until_equal()
        assert replicas.at(victim).log_end_offset == 2

    play(scenario)


def test_a_replica_that_is_damaged_below_what_was_synced_is_cut_and_fetched_again() -> None:
    """Its next registration tells that it has lost something, so that it is not taken for whole."""

    async def scenario(replicas: Replicas) -> None:
        await replicas.create(1, flush_messages="1")
        for value in (b"1", b"2", b"3"):
            assert await replicas.produce(value)
        await replicas.until_equal()
        damaged = 1 + replicas.leader_of() % 3
        node = replicas.world.nodes[damaged - 1]
        assert node.node is not None and node.node.broker is not None
        epoch_before = node.node.broker.image.brokers[damaged].epoch
        replicas.at(damaged).directory.checkpoint_job()()
        replicas.kill(damaged)
        content = node.machine.files.inode(f"/data{damaged}/logs/{TOPIC}-0/00000000000000000000.log").data
        content[-1] ^= 1
        replicas.start(damaged)
        await replicas.until_equal()
        broker = node.node.broker
        assert broker is not None
        registered = broker.image.brokers[damaged]
        assert registered.epoch > epoch_before and registered.intact_since == registered.epoch
        assert len(replicas.replicator(damaged).failed) == 0

    play(scenario)
