"""Replica id -2: somebody who looks at one replica, leader or not, up to its end."""

from headrace.errors import ErrorCode
from headrace.wire.messages.offsets import ListOffsetsPartition
from headrace.wire.messages.produce import ProduceResponse
from tests.broker.asking import DEBUG_REPLICA, EARLIEST, LATEST, produce_request, records_of, values_of
from tests.broker.trio import Trio, play

NOT_HERE = ErrorCode.NOT_LEADER_OR_FOLLOWER


async def written(trio: Trio, settings: dict[str, str] | None = None) -> None:
    """One record that both replicas have."""
    await trio.topic([1, 2], settings=settings)
    leader = await trio.client(1)
    if settings is None:
        await leader.ask(produce_request({0: records_of([b"a"])}), ProduceResponse, 12)
        await trio.until(lambda: trio.partition(2).log_end_offset == 1)


def test_a_follower_shows_its_own_log_to_who_debugs_and_to_nobody_else() -> None:
    async def scenario(trio: Trio) -> None:
        await written(trio)
        follower = await trio.client(2)
        assert (await follower.fetch(0)).error_code == NOT_HERE
        found = await follower.fetch(0, replica_id=DEBUG_REPLICA)
        assert found.error_code == 0 and values_of(found.records) == [b"a"]
        assert await follower.offset(LATEST, replica_id=DEBUG_REPLICA) == 1
        assert await follower.offset(EARLIEST, replica_id=DEBUG_REPLICA) == 0
        (refused,) = await follower.list_offsets(ListOffsetsPartition(partition_index=0, timestamp=LATEST))
        assert refused.error_code == NOT_HERE
        assert (await follower.fetch(2, replica_id=DEBUG_REPLICA)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    play(scenario, replicates=True)


def test_where_only_owners_may_read_a_follower_shows_nothing() -> None:
    """Town-29: the table of owners lives on the leader only."""

    async def scenario(trio: Trio) -> None:
        await written(trio, {"own.fetch.group": "readers"})
        follower = await trio.client(2)
        assert (await follower.fetch(0, replica_id=DEBUG_REPLICA)).error_code == NOT_HERE

    play(scenario, replicates=True)


def test_what_is_in_the_tier_alone_is_not_this_replicas() -> None:
    async def scenario(trio: Trio) -> None:
        await written(trio)
        trio.partition(2).local_log_start_offset = 1
        follower = await trio.client(2)
        moved = await follower.fetch(0, replica_id=DEBUG_REPLICA)
        assert moved.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE and moved.log_start_offset == 0

    play(scenario, replicates=True)
