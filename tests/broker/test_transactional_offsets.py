"""Offsets that are committed in a transaction, on three nodes: they count when it is committed, and not before."""

import asyncio

import pytest

from headrace.core.transaction import State
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.wire.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headrace.wire.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tests.broker.asking import TOPIC
from tests.broker.trio import Scenario, Trio, play
from tests.broker.txn_owner import (
    SETTINGS,
    Owner,
    coordinator_of,
    first_of,
    make_ready,
    no_marker_leaves,
    settled,
    until_in_state,
)

GROUP = "readers"
NO_OFFSET = -1


def run(scenario: Scenario) -> None:
    play(scenario, {**SETTINGS, "offsets.topic.num.partitions": "1"}, replicates=True)


async def group_coordinator(trio: Trio) -> int:
    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
    while True:
        for node in trio.world.nodes:
            if not node.is_serving:
                continue
            try:
                found = (await (await trio.client(node.node_id)).ask(asked, FindCoordinatorResponse)).coordinators[0]
            except PeerLost:
                continue
            if not found.error_code and trio.world.nodes[found.node_id - 1].is_serving:
                return found.node_id
        await asyncio.sleep(0.05)


async def add_offsets(owner: Owner, version: int = 4) -> int:
    asked = AddOffsetsToTxnRequest(
        transactional_id=owner.id,
        producer_id=owner.claim.producer_id,
        producer_epoch=owner.claim.epoch,
        group_id=GROUP,
    )
    return (await owner.ask(asked, AddOffsetsToTxnResponse, version)).error_code


async def commit_offset(owner: Owner, offset: int) -> int:
    asked = TxnOffsetCommitRequest(
        transactional_id=owner.id,
        group_id=GROUP,
        producer_id=owner.claim.producer_id,
        producer_epoch=owner.claim.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
                ],
            )
        ],
    )
    at = await group_coordinator(owner.trio)
    return (await owner.ask(asked, TxnOffsetCommitResponse, 3, at)).topics[0].partitions[0].error_code


async def fetch_offset(trio: Trio, *, stable: bool) -> tuple[int, int]:
    """The code and the offset."""
    while True:
        topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        asked = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])], require_stable=stable
        )
        try:
            client = await trio.client(await group_coordinator(trio))
            (group,) = (await client.ask(asked, OffsetFetchResponse, 8)).groups
        except PeerLost:
            continue
        if not group.error_code:
            (found,) = group.topics[0].partitions
            return found.error_code, found.committed_offset
        await asyncio.sleep(0.05)


async def with_offset(trio: Trio, offset: int) -> Owner:
    owner = Owner(trio)
    assert await settled(owner.init) == 0
    assert await settled(lambda: add_offsets(owner)) == 0
    assert await settled(lambda: commit_offset(owner, offset)) == 0
    return owner


def test_offsets_count_when_their_transaction_is_committed() -> None:
    """Ttxn-8."""

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = await with_offset(trio, 5)
        assert await fetch_offset(trio, stable=False) == (0, NO_OFFSET)
        assert await fetch_offset(trio, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, NO_OFFSET)
        assert await owner.end(commit=True) == 0
        await until_in_state(trio, State.COMPLETE_COMMIT)
        assert await fetch_offset(trio, stable=True) == (0, 5)

    run(scenario)


def test_offsets_of_an_aborted_transaction_are_never_told() -> None:
    """Ttxn-8."""

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = await with_offset(trio, 5)
        assert await owner.end(commit=True) == 0
        await until_in_state(trio, State.COMPLETE_COMMIT)
        assert await settled(lambda: add_offsets(owner)) == 0
        assert await settled(lambda: commit_offset(owner, 9)) == 0
        assert await fetch_offset(trio, stable=False) == (0, 5)
        assert await owner.end(commit=False) == 0
        await until_in_state(trio, State.COMPLETE_ABORT)
        assert await fetch_offset(trio, stable=True) == (0, 5)

    run(scenario)


def test_offsets_and_records_of_a_transaction_survive_both_coordinators_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ttxn-1 and 8: both are killed between the decision and the markers."""

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = await with_offset(trio, 7)
        assert await settled(lambda: first_of(owner.add(0))) == 0
        assert await settled(lambda: owner.produce([b"1"])) == 0
        node_id = await coordinator_of(trio)
        no_marker_leaves(trio, node_id, monkeypatch)
        assert await owner.end(commit=True) == 0
        assert await fetch_offset(trio, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, NO_OFFSET)
        trio.world.nodes[node_id - 1].kill()
        trio.world.nodes[node_id - 1].start()
        await trio.serves(node_id)
        other = await group_coordinator(trio)
        if other != node_id:
            await until_in_state(trio, State.COMPLETE_COMMIT)
            trio.world.nodes[other - 1].kill()
        await until_in_state(trio, State.COMPLETE_COMMIT)
        while await fetch_offset(trio, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, NO_OFFSET):  # noqa: ASYNC110  # nobody tells when
            await asyncio.sleep(0.1)
        assert await fetch_offset(trio, stable=True) == (0, 7)

    run(scenario)


def test_who_is_not_the_owner_adds_no_offsets() -> None:
    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        old = await with_offset(trio, 5)
        new = Owner(trio)
        assert await settled(new.init) == 0
        assert await add_offsets(old) == ErrorCode.PRODUCER_FENCED
        assert await add_offsets(old, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await commit_offset(old, 6) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await commit_offset(new, 6) != 0
        assert await fetch_offset(trio, stable=True) == (0, NO_OFFSET)

    run(scenario)
