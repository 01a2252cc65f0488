"""What a leader tells of its tiered partitions to those who plan reads of the objects themselves."""

import json
from typing import Any

import msgspec
import pytest

from headrace.broker import tier
from headrace.broker.tier_work import REMIND_MS
from headrace.tier.manifest import decode
from headrace.tier.memory import Mishap
from headrace.wire.messages.inspection import InspectRequest, InspectResponse
from tests.broker.copying import TIERED, TieredWorld, copied, fill, partition_of, rows_of, tier_log_of, tiering
from tests.broker.support import TOPIC, Client, until


async def inspect(client: Client, *topics: str) -> list[dict[str, Any]]:
    answer = await client.ask(InspectRequest(kind="tier", args=list(topics)), InspectResponse)
    assert answer.error_code == 0
    found: list[dict[str, Any]] = json.loads(answer.body)["tier"]
    return found


async def test_a_leader_tells_its_manifest_its_epochs_and_which_segments_belong_to_its_log() -> None:
    async with tiering() as (world, served, client):
        await fill(client, 20)
        await copied(served)
        partition = partition_of(served)
        await until(lambda: len(partition.log.segments) == 1)
        await client.create_topic("others")
        (told,) = await inspect(client)
        assert await inspect(client, TOPIC) == [told] and await inspect(client, "others") == []
        manifest = decode(world.bucket.objects[told["manifest"]])
        assert (told["topic"], told["topic_id"], told["partition"]) == (TOPIC, manifest.topic_id, 0)
        assert told["manifest_number"] == manifest.number
        assert (told["log_start"], told["local_log_start"]) == (0, partition.local_log_start_offset)
        assert (told["high_watermark"], told["last_stable"], told["log_end"]) == (20, 20, 20)
        assert told["highest_remote"] == partition.local_log_start_offset - 1
        assert told["epochs"] == [[0, 0]] and told["failure"] is None
        assert (told["lag_segments"], told["lag_bytes"]) == (0, 0)
        assert told["url"] == world.settings["remote.storage.url"]
        assert [(one["id"], one["verdict"], one["state"]) for one in told["segments"]] == [
            (row.id, "inside", "copy_finished") for row in rows_of(served)
        ]
        assert all(len(world.bucket.objects[one["object"]]) == one["bytes"] for one in told["segments"])
        assert [one["epochs"] for one in told["segments"]] == [
            [list(at) for at in row.epochs] for row in rows_of(served)
        ]
        for one in told["segments"]:
            log_at, log_bytes = one["sections"]["log"]
            assert (log_at, one["sections"]["index"][0]) == (0, log_bytes) and "txnindex" not in one["sections"]
        assert told["aborted_across"] == []


async def test_a_segment_of_another_history_is_told_as_one_that_nobody_may_read() -> None:
    """T8-3, for those who read objects themselves."""
    async with tiering(topic={"local.retention.bytes": "-2"}) as (_, served, client):
        await fill(client, 20)
        await copied(served)
        tier_log = tier_log_of(served)
        assert tier_log.manifest is not None
        rows = list(tier_log.manifest.rows)
        rows[1] = msgspec.structs.replace(rows[1], epochs=((7, rows[1].base_offset),))
        tier_log.manifest = msgspec.structs.replace(tier_log.manifest, rows=tuple(rows))
        (told,) = await inspect(client)
        verdicts = {one["id"]: one["verdict"] for one in told["segments"]}  # it may be being copied anew by now
        assert [verdicts[row.id] for row in rows] == ["inside", "divergent", *["inside"] * (len(rows) - 2)]


async def test_what_waits_to_be_copied_is_told_and_why_nothing_is_known() -> None:
    with TieredWorld({"remote.log.manager.task.interval.ms": "3600000"}) as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings={"remote.storage.enable": "true", "segment.bytes": "300"})
            await fill(client, 10)
            (told,) = await inspect(client)
            assert told["manifest"] is None and told["segments"] == []
            assert told["lag_segments"] == len(partition_of(served).log.segments) - 1 > 1
            assert 0 < told["lag_bytes"] < told["local_bytes"]
            tier_log = tier_log_of(served)
            tier_log.manifest, tier_log.failure = None, "The store is down."
            (told,) = await inspect(client)
            assert told["failure"] == "The store is down." and "segments" not in told


async def test_why_copies_fail_is_told_until_they_succeed() -> None:
    async with tiering() as (world, served, client):
        world.bucket.mishap = lambda operation, _: Mishap(fails=operation == "put")
        await fill(client, 10)
        await until(lambda: tier_log_of(served).stopped)
        (told,) = await inspect(client)
        assert told["failure"] and told["copying"] and told["lag_segments"] > 0
        world.bucket.mishap = lambda *_: Mishap()
        await until(lambda: not tier_log_of(served).stopped)
        await copied(served)
        (told,) = await inspect(client)
        assert told["failure"] is None and told["lag_segments"] == 0


@pytest.mark.parametrize(
    ("mishap", "why"), [(Mishap(fails=True), "size"), (Mishap(delay_ms=600_000), "It does not answer.")]
)
async def test_a_store_that_is_away_is_told_also_where_nothing_waits_to_be_copied(
    mishap: Mishap, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "LOOK_S_MAX", 0.2)
    async with tiering() as (world, served, client):
        await fill(client, 10)
        await copied(served)
        world.bucket.mishap = lambda operation, _: mishap if operation == "size" else Mishap()
        (told,) = await inspect(client)
        assert told["lag_segments"] == 0 and why in told["failure"]
        world.bucket.mishap = lambda *_: Mishap()
        (told,) = await inspect(client)
        assert told["failure"] is None


async def test_where_nothing_is_copied_nothing_lags() -> None:
    async with tiering(topic={"remote.log.copy.disable": "true"}) as (_, served, client):
        await fill(client, 10)
        assert len(partition_of(served).log.segments) > 2
        await until(lambda: tier_log_of(served).is_loaded.is_set())
        (told,) = await inspect(client)
        assert (told["copying"], told["lag_segments"], told["lag_bytes"]) == (False, 0, 0)


async def test_a_store_that_is_away_is_one_line_for_all_partitions_and_rounds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headrace.broker.tier_work")
    async with tiering() as (world, _, client):
        await client.create_topic("others", settings=TIERED)
        tries = 0

        def mishap(operation: str, _: str) -> Mishap:
            nonlocal tries
            tries += operation == "put"
            return Mishap(fails=operation == "put")

        world.bucket.mishap = mishap
        await fill(client, 10)
        await fill(client, 10, "others")
        await until(lambda: tries > 20)
        assert caplog.text.count("goes on later") == 1
        world.clock.now_ms += REMIND_MS
        await until(lambda: caplog.text.count("goes on later") == 2)
        assert "work on its tier (and of 1 others) goes on later" in caplog.text
        world.bucket.mishap = lambda *_: Mishap()
        await until(lambda: "work on the tier goes on\n" in caplog.text)
