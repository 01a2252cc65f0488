"""Claims on one broker: who gets which generation, and who loses its connection. Scenarios by their ids."""

from headrace.errors import ErrorCode
from headrace.wire.frames import decode_response
from headrace.wire.messages.own import OwnResponse
from tests.broker.owning import FIRST, GROUP, ME, OTHER, RELEASE, SECOND, STALE, owner
from tests.broker.support import TOPIC, Raw, records_of, serving
from tests.net.loops import on_both_loops


@on_both_loops
async def test_the_first_claim_gets_generation_1() -> None:
    """Town-1."""
    async with serving() as (served, client):
        await client.produce(records_of([b"a", b"b"]))
        claimed = await (await owner(served)).claim(7)
        assert (claimed.error_code, claimed.generation, claimed.fence_offset) == (0, 1, 2)
        assert claimed.leader is not None
        assert (claimed.leader.id, claimed.leader.port) == (1, int(served.node.address.rpartition(":")[2]))


async def test_a_lower_generation_is_refused_and_the_owner_works_on() -> None:
    """Town-2."""
    async with serving() as (served, _):
        first, second, third = [await owner(served) for _ in range(3)]
        await first.granted()
        assert await second.granted(4) == 5
        assert await third.refused(4) == 5
        assert await second.lives()
        assert await second.granted(5) == 5


async def test_an_equal_generation_takes_over_and_the_loser_cannot_come_back_with_it() -> None:
    """Town-3, Town-4."""
    async with serving() as (served, _):
        first, second, back = [await owner(served) for _ in range(3)]
        assert await first.granted() == 1
        assert await second.granted(1) == 2
        assert await first.is_cut()
        assert await back.refused(1) == 2
        assert await second.lives()


async def test_generation_0_beats_every_fence_and_begins_again() -> None:
    """Town-5."""
    async with serving() as (served, _):
        first, second = [await owner(served) for _ in range(2)]
        await first.granted()
        assert await second.granted(6) == 7
        third = await owner(served)
        assert await third.granted(0) == 1
        assert await second.is_cut()


async def test_who_claims_again_keeps_its_connection_and_its_fence() -> None:
    """Town-6."""
    async with serving() as (served, client):
        first = await owner(served)
        before = await first.claim()
        await client.produce()
        again = await first.claim(9)
        assert (again.generation, again.fence_offset) == (before.generation, before.fence_offset) == (1, 0)
        await (await owner(served)).granted(1)
        assert await first.is_cut()


async def test_a_lower_generation_of_the_owner_itself_is_refused_and_it_keeps_what_it_has() -> None:
    async with serving() as (served, _):
        first, second = [await owner(served) for _ in range(2)]
        await first.granted()
        assert await second.granted(1) == 2
        assert await second.refused(1) == 2
        assert await second.lives()


async def test_groups_do_not_interact() -> None:
    """Town-7."""
    async with serving() as (served, _):
        first, second = [await owner(served) for _ in range(2)]
        assert await first.granted() == 1
        assert await second.granted(group="readers") == 1
        assert await first.lives() and (await second.own(group="readers")).error_code == 0
        assert (await first.own((FIRST, 1), group="readers")).error_code == ErrorCode.INVALID_GROUP_ID


async def test_after_a_disconnect_anybody_begins_again_at_1() -> None:
    """Town-8, without retention."""
    async with serving() as (served, _):
        first, second = [await owner(served) for _ in range(2)]
        await first.granted()
        assert await second.granted(3) == 4
        second.peer.close()
        third = await owner(served)
        while (claimed := await third.claim(1)).error_code:
            assert claimed.generation == 4
        assert claimed.generation == 1


async def test_severing_frees_everything_else_that_the_victim_had() -> None:
    """Town-12."""
    async with serving(partitions=2) as (served, _):
        first, second = [await owner(served) for _ in range(2)]
        await first.own((FIRST, 1), (SECOND, 1), ("a name", 1))
        await second.granted(1)
        assert await second.granted(1, SECOND) == 1
        assert await second.granted(1, "a name") == 1


async def test_several_resources_are_decided_against_one_snapshot() -> None:
    """Town-18: the second resource is refused by the generation that it had, and is free since its owner is gone."""
    async with serving(partitions=2) as (served, _):
        one, two, a, b = [await owner(served) for _ in range(4)]
        await one.own((FIRST, 1), (SECOND, 1))
        await two.own((FIRST, 2), (SECOND, 4))  # 3 and 5
        answer = await a.own((FIRST, 3), (SECOND, 3))
        assert [(r.error_code, r.generation) for r in answer.resources] == [(0, 4), (STALE, 5)]
        assert await b.granted(1, SECOND) == 1


async def test_a_takeover_of_several_resources_of_one_owner_gives_each_its_own_number() -> None:
    """Town-18, the other variant."""
    async with serving(partitions=2) as (served, _):
        one, two, three = [await owner(served) for _ in range(3)]
        await one.own((FIRST, 1), (SECOND, 1))
        await two.own((FIRST, 2), (SECOND, 4))
        answer = await three.own((FIRST, 3), (SECOND, 5))
        assert [(r.error_code, r.generation) for r in answer.resources] == [(0, 4), (0, 6)]


async def test_release_of_what_is_owned_of_what_is_not_and_of_what_nobody_knows() -> None:
    """Town-24."""
    async with serving(partitions=2) as (served, _):
        first, second = [await owner(served) for _ in range(2)]
        await first.granted()
        await second.granted(1, SECOND)
        answer = await first.own((FIRST, 1), (SECOND, 1), ("nothing", 1), op=RELEASE)
        assert [r.error_code for r in answer.resources] == [0, STALE, STALE]
        assert await second.granted(1) == 1
        assert await first.lives()
        assert (await second.own((FIRST, 2), op=RELEASE)).resources[0].error_code == STALE
        assert (await second.own((FIRST, 0), op=RELEASE)).resources[0].error_code == 0


async def test_what_cannot_be_asked_is_refused_alone_or_as_a_whole() -> None:
    async with serving(partitions=2) as (served, _):
        first = await owner(served)
        bad = ErrorCode.INVALID_REQUEST
        answer = await first.own((FIRST, -1), (SECOND, 1), (SECOND, 1), ("", 1), ("n", 1))
        assert [r.error_code for r in answer.resources] == [bad, bad, bad, bad, 0]
        assert (await first.own((FIRST, 1), op=5)).error_code == bad
        for op in (1, 2, 3):
            assert (await first.own(op=op)).error_code == bad
        other = await owner(served)
        assert (await other.own((FIRST, 1), group="")).error_code == ErrorCode.INVALID_GROUP_ID
        assert (await other.own((FIRST, 1), group="x" * 250)).error_code == ErrorCode.INVALID_GROUP_ID
        assert (await first.claim(1, "n2", exclusive=1)).error_code == bad
        assert (await first.claim(1, exclusive=4)).error_code == bad
        assert (await first.claim(1, op=2)).error_code == bad


async def test_the_highest_generation_cannot_be_passed_and_only_a_reset_gets_out() -> None:
    async with serving() as (served, _):
        first, second, third = [await owner(served) for _ in range(3)]
        await first.granted()
        assert await second.granted(2**31 - 2) == 2**31 - 1
        claimed = await third.claim(2**31 - 1)
        assert (claimed.error_code, claimed.generation) == (ErrorCode.POLICY_VIOLATION, 2**31 - 1)
        assert await third.granted(0) == 1


async def test_the_bytes_of_the_first_proposal_without_any_tag() -> None:
    """Town-43: the four rows of the proposal, one by one."""

    def frame(generation: int) -> bytes:
        name, group = FIRST.encode(), GROUP.encode()
        body = bytes([len(group) + 1]) + group + b"\x02" + bytes([len(name) + 1]) + name
        body += generation.to_bytes(4, "big", signed=True) + b"\x00" + b"\x00"
        header = (18200).to_bytes(2, "big") + b"\x00\x00" + b"\x00\x00\x00\x07" + b"\xff\xff" + b"\x00"
        return (len(header) + len(body)).to_bytes(4, "big") + header + body

    async with serving() as (served, _):
        a, b, c, d = [await served.raw() for _ in range(4)]

        async def ask(raw: Raw, generation: int) -> tuple[int, int]:
            raw.send([frame(generation)])
            _, answer = decode_response(OwnResponse, 0, await raw.frame())
            return answer.resources[0].error_code, answer.resources[0].generation

        assert await ask(a, 3) == (0, 1)  # nobody owns it
        assert await ask(b, 5) == (0, 6)  # not lower: the owner is cut off
        assert await a.is_closed()
        assert await ask(c, 5) == (STALE, 6)  # lower: it stays
        assert await ask(d, 0) == (0, 1)  # always
        assert await b.is_closed()
        for raw in (a, b, c, d):
            raw.close()


async def test_a_resume_brings_back_only_what_was_ones_own() -> None:
    """Town-31, with a live owner."""
    async with serving() as (served, _):
        first = await owner(served)
        assert await first.granted(holder=ME) == 1
        other = await owner(served)
        for generation, holder in ((1, OTHER), (2, ME), (2, OTHER)):
            resumed = await other.resume(generation, holder=holder)
            assert (resumed.error_code, resumed.generation) == (STALE, 1)
        assert (await other.resume(1, SECOND)).error_code == STALE
        assert await first.lives()
        back = await owner(served)
        assert (await back.resume(1)).generation == 1
        assert await first.is_cut()
        assert (await back.resume(1)).error_code == 0
        assert await back.lives()


async def test_topics_are_named_by_their_last_hyphen_and_anything_else_is_a_name() -> None:
    async with serving() as (served, _):
        first = await owner(served)
        answer = await first.own((f"{TOPIC}-0", 1), (f"{TOPIC}-00", 1), (f"{TOPIC}-1", 1), (TOPIC, 1))
        epochs = [r.leader.epoch for r in answer.resources if r.leader is not None]
        assert epochs[0] >= 0 and epochs[1:] == [-1, -1, -1]
