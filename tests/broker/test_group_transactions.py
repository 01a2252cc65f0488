"""Tgrp-7, Ttxn-8: offsets in transactions. They wait for the end; who wants stable ones hears 88 meanwhile."""

import pytest

from headrace.core.internal_topics import CONSUMER_OFFSETS
from headrace.errors import ErrorCode
from headrace.wire.batch import NewRecord, build, read_header
from headrace.wire.group_records import CommittedOffset, offset_key, offset_key_prefix, offset_value
from headrace.wire.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headrace.wire.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tests.broker import txn_owner
from tests.broker.asking import TOPIC
from tests.broker.grouped import GROUP, SETTINGS, Group, Member, comes_to, coordinator_of, copies_of, settled, stable
from tests.broker.trio import Scenario, Trio, play
from tests.broker.txn_owner import Owner

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def run(scenario: Scenario) -> None:
    async def main(trio: Trio) -> None:
        await trio.topic([1], [2])
        await coordinator_of(trio)
        await trio.until(lambda: len(copies_of(trio)) == 3)
        await scenario(trio)

    play(main, {**SETTINGS, **txn_owner.SETTINGS}, replicates=True)


async def began(trio: Trio, transactional_id: str = txn_owner.ID, with_group: bool = True) -> Owner:
    owner = Owner(trio, transactional_id)
    assert await txn_owner.settled(owner.init) == 0
    if with_group:
        assert await txn_owner.settled(lambda: add_offsets(owner)) == 0
    return owner


async def add_offsets(owner: Owner) -> int:
    asked = AddOffsetsToTxnRequest(
        transactional_id=owner.id,
        producer_id=owner.claim.producer_id,
        producer_epoch=owner.claim.epoch,
        group_id=GROUP,
    )
    return (await owner.ask(asked, AddOffsetsToTxnResponse)).error_code


async def send(
    owner: Owner, offsets: dict[int, int], *, member: Member | None = None, version: int = 4, topic: str = TOPIC
) -> list[int]:
    asked = TxnOffsetCommitRequest(
        transactional_id=owner.id,
        group_id=GROUP,
        producer_id=owner.claim.producer_id,
        producer_epoch=owner.claim.epoch,
        generation_id=-1 if member is None else member.generation,
        member_id="" if member is None else member.member_id,
        group_instance_id=None if member is None else member.instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=None
                    )
                    for index, offset in offsets.items()
                ],
            )
        ],
    )
    answer = await Group(owner.trio).ask(asked, TxnOffsetCommitResponse, version)
    return [told.error_code for topic in answer.topics for told in topic.partitions]


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("dies", [False, True], ids=["", "through the death of the coordinator"])
def test_offsets_of_a_transaction_count_when_it_is_committed(commit: bool, dies: bool) -> None:
    async def scenario(trio: Trio) -> None:
        group = Group(trio)
        assert await group.commit({0: 1, 1: 1}) == [0, 0]
        owner = await began(trio)
        assert await send(owner, {0: 7}) == [0]
        assert await group.committed(0, 1) == [(0, 1), (0, 1)]
        assert await group.committed(0, 1, stable=True) == [(UNSTABLE, -1), (0, 1)]
        if dies:
            trio.world.nodes[await coordinator_of(trio) - 1].kill()
            await comes_to([(UNSTABLE, -1), (0, 1)], lambda: Group(trio).committed(0, 1, stable=True))
        assert await txn_owner.settled(lambda: owner.end(commit)) == 0
        after = [(0, 7 if commit else 1), (0, 1)]
        await comes_to(after, lambda: Group(trio).committed(0, 1, stable=True))
        assert await Group(trio).committed(0, 1) == after

    run(scenario)


def test_what_is_committed_is_still_so_at_the_next_coordinator() -> None:
    async def scenario(trio: Trio) -> None:
        owner = await began(trio)
        assert await send(owner, {0: 7}) == [0]
        assert await txn_owner.settled(lambda: owner.end(True)) == 0
        await comes_to([(0, 7)], lambda: Group(trio).committed(0, stable=True))
        assert await txn_owner.settled(lambda: add_offsets(owner)) == 0
        assert await send(owner, {0: 9}) == [0]
        assert await txn_owner.settled(lambda: owner.end(False)) == 0
        await comes_to([(0, 7)], lambda: Group(trio).committed(0, stable=True))
        trio.world.nodes[await coordinator_of(trio) - 1].kill()
        await comes_to([(0, 7)], lambda: Group(trio).committed(0, stable=True))

    run(scenario)


def test_only_a_transaction_with_the_group_in_it_commits_offsets() -> None:
    async def scenario(trio: Trio) -> None:
        owner = await began(trio, with_group=False)
        assert await send(owner, {0: 7}) == [ErrorCode.INVALID_TXN_STATE]
        assert await Group(trio).committed(0, stable=True) == [(0, -1)]
        node_id = await coordinator_of(trio)
        assert trio.partition(node_id, name=CONSUMER_OFFSETS).log_end_offset == 0
        assert len(trio.broker(node_id).groups) == 0

    run(scenario)


def test_a_producer_that_was_fenced_commits_nothing() -> None:
    async def scenario(trio: Trio) -> None:
        old = await began(trio)
        assert await send(old, {0: 7}) == [0]
        new = await began(trio)
        assert new.claim.epoch > old.claim.epoch
        assert await send(new, {1: 8}) == [0]
        assert await send(old, {0: 9}) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await txn_owner.settled(lambda: new.end(True)) == 0
        await comes_to([(0, -1), (0, 8)], lambda: Group(trio).committed(0, 1, stable=True))

    run(scenario)


def test_a_member_says_who_it_is_and_one_that_was_replaced_is_refused() -> None:
    async def scenario(trio: Trio) -> None:
        (member,) = await stable(trio, instance_id="static")
        owner = await began(trio)
        assert await send(owner, {0: 7}, member=member) == [0]
        member.generation += 1
        assert await send(owner, {0: 8}, member=member) == [ErrorCode.ILLEGAL_GENERATION]
        member.generation -= 1
        other = Member(trio, instance_id="static")
        assert await settled(other.join) == 0
        assert await send(owner, {0: 8}, member=member) == [ErrorCode.FENCED_INSTANCE_ID]
        member.member_id, member.instance_id = "nobody", None
        assert await send(owner, {0: 8}, member=member) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await send(owner, {0: 8}, version=2) == [0], "older clients cannot say"
        assert await send(owner, {0: 8}, topic="nothing") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    run(scenario)


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_a_transaction_that_ends_while_its_offsets_are_read_back_ends(commit: bool) -> None:
    """Its marker comes behind what is read, and is told by whoever wrote it."""

    async def scenario(trio: Trio) -> None:
        groups = trio.broker(await coordinator_of(trio)).groups
        key = offset_key(offset_key_prefix(GROUP, TOPIC), 0)
        value = offset_value(CommittedOffset(7, -1, "", 0))
        built = build([NewRecord(0, key, value)], transactional=True, producer_id=9, producer_epoch=0, base_sequence=0)
        batch = bytes(built)
        groups.begin(7, 0)
        groups._replay(7, read_header(batch), batch, 0)
        groups.transaction_ended(7, 9, commit)
        groups.loaded(7)
        assert list(groups._kept[7]) == ([GROUP] if commit else []), "what was aborted leaves nothing behind"
        for group in groups._kept[7].values():
            assert not group.offsets.pending
            assert group.offsets.get(TOPIC, 0) == CommittedOffset(7, -1, "", 0)

    run(scenario)


def test_a_plain_commit_behind_that_of_an_open_transaction_counts() -> None:
    async def scenario(trio: Trio) -> None:
        owner = await began(trio)
        assert await send(owner, {0: 7, 1: 7}) == [0, 0]
        group = Group(trio)
        assert await group.commit({0: 9}) == [0]
        assert await txn_owner.settled(lambda: owner.end(True)) == 0
        await comes_to([(0, 9), (0, 7)], lambda: Group(trio).committed(0, 1, stable=True))
        trio.world.nodes[await coordinator_of(trio) - 1].kill()
        await comes_to([(0, 9), (0, 7)], lambda: Group(trio).committed(0, 1, stable=True))

    run(scenario)
