"""What clients are told of a partition's offsets while its leaders change: it never goes back. Scenarios T207."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.client import Consumer
from headrace.errors import ErrorCode
from headrace.model import TopicPartition
from headrace.net.peer import PeerLost
from headrace.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.offsets import ListOffsetsPartition
from tests.broker.asking import EARLIEST, LATEST, TOPIC, Client, records_of
from tests.broker.stepped import NOW_MS
from tests.broker.trio import Trio, play

METADATA = 3
NODES = (1, 2, 3)
TELLS_NOT_AVAILABLE = 5
QUICK = {"replica.lag.time.max.ms": "2000"}
"""Whoever does not fetch soon holds nobody up, so that a new leader may go on without the old one."""


async def told(client: Client, timestamp: int = LATEST, version: int = 11) -> tuple[int, int]:
    """Code and offset; no leader epoch is named."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    (found,) = await client.list_offsets(asked, version=version)
    assert asked.current_leader_epoch == -1
    return found.error_code, found.offset


def certainly_dead(trio: Trio, node_id: int) -> None:
    """Killed, and whoever waited for the process withdraws its registration."""
    lease = trio.broker(node_id).controller.registration.lease
    trio.world.nodes[node_id - 1].kill()
    if lease is not None:
        trio.world.data.revoke(lease.id)


async def failed_over(trio: Trio, settings: dict[str, str] | None = None) -> tuple[int, int]:
    """Six records, the last three not yet known as committed to the followers when their leader dies: the new leader,
    and the replica that cannot reach it until links heal. It was told of offset 6 before."""
    leader, next_leader = (n for n in NODES if n != trio.controller_id)
    other = trio.controller_id
    await trio.topic([leader, next_leader, other], settings=settings)
    client = await trio.client(leader)
    for n in range(6):
        sent = records_of([b"%d" % n], timestamps=[NOW_MS + 10 * n])
        assert (await client.produce(sent)).error_code == 0
        if n == 2:
            await asyncio.sleep(2)  # idle fetches tell followers what is committed
    assert await told(client) == (0, 6)
    assert trio.partition(next_leader).high_watermark < 6
    for one, another in ((next_leader, other), (other, next_leader)):
        trio.world.network.cut(f"node{one}", f"node{another}")
    certainly_dead(trio, leader)
    await trio.leads(next_leader)
    return next_leader, other


def test_t207_1_a_new_leader_tells_no_end_before_it_knows_what_the_old_one_may_have_told() -> None:
    async def scenario(trio: Trio) -> None:
        leader, _ = await failed_over(trio)
        client = await trio.client(leader)
        for version in (1, 4, 5, 11):
            code, _ = await told(client, version=version)
            precise = version >= TELLS_NOT_AVAILABLE
            assert code == (ErrorCode.OFFSET_NOT_AVAILABLE if precise else ErrorCode.LEADER_NOT_AVAILABLE)
        trio.world.network.heal_all()
        await trio.until(lambda: not trio.partition(leader).is_list_guarded)
        assert await told(client) == (0, 6)

    play(scenario, replicates=True)


def test_t207_11_a_time_that_was_found_is_never_lost_or_found_elsewhere() -> None:
    async def scenario(trio: Trio) -> None:
        leader, _ = await failed_over(trio)
        client = await trio.client(leader)
        times = [NOW_MS + 10 * n - 5 for n in range(6)]
        assert {(await told(client, time))[0] for time in times} == {ErrorCode.OFFSET_NOT_AVAILABLE}
        trio.world.network.heal_all()
        await trio.until(lambda: not trio.partition(leader).is_list_guarded)
        assert [await told(client, time) for time in times] == [(0, n) for n in range(6)]

    play(scenario, replicates=True)


def test_t207_5_unclean_elections_allowed_inside_a_window_end_it_at_once() -> None:
    async def allow(client: Client) -> None:
        config = IncrementalAlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
        resource = IncrementalAlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await client.ask(request, IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == 0

    async def scenario(trio: Trio) -> None:
        leader, other = await failed_over(trio)
        client = await trio.client(leader)
        assert (await told(client))[0] == ErrorCode.OFFSET_NOT_AVAILABLE
        await trio.until(lambda: trio.controller_id == other)
        await allow(await trio.client(other))
        await trio.until(lambda: trio.broker(leader).image.topics[TOPIC].config.unclean_leader_election_enable)
        code, offset = await told(client)
        assert code == 0 and offset < 6  # as it is where records may be lost

    async def never(trio: Trio) -> None:
        leader, _ = await failed_over(trio, {"unclean.leader.election.enable": "true"})
        assert (await told(await trio.client(leader)))[0] == 0

    play(scenario, replicates=True)
    play(never, replicates=True)


def test_t207_10_our_client_waits_for_the_end_of_the_window_without_asking_for_metadata() -> None:
    async def scenario(trio: Trio) -> None:
        def metadata_requests() -> int:
            return sum(trio.broker(n).metrics.requests[METADATA] for n in NODES if trio.world.nodes[n - 1].is_serving)

        async with Consumer(trio.world.bootstrap, outside=trio.outside) as consumer:
            leader, _ = await failed_over(trio)
            partition = TopicPartition(TOPIC, 0)
            asking = asyncio.create_task(consumer.end_offsets([partition]))
            guards = trio.broker(leader).guards
            await trio.until(lambda: guards.refused)
            before, refused, began_s = metadata_requests(), guards.refused, trio.world.loop.now_s
            await asyncio.sleep(10)
            assert not asking.done() and metadata_requests() == before
            assert 8 <= guards.refused - refused <= 16  # 100 ms, doubled up to a second
            trio.world.network.heal_all()
            assert await asking == {partition: 6}
            assert metadata_requests() == before and trio.world.loop.now_s - began_s < 13

    play(scenario, replicates=True)


def test_t207_8_a_rebalanced_partition_is_not_told_of_by_its_old_leader_though_it_hears_nothing_of_it() -> None:
    async def scenario(trio: Trio) -> None:
        preferred, old_leader = (n for n in NODES if n != trio.controller_id)
        await trio.topic([preferred, old_leader, trio.controller_id])
        await trio.move_to(old_leader)
        await trio.until(lambda: len(trio.record(at=trio.controller_id).isr) == 3)
        asked = {n: await trio.client(n) for n in (preferred, old_leader)}
        answers: list[tuple[int, int]] = []

        async def ask_all() -> None:
            for node_id, client in asked.items():
                code, offset = await told(client)
                if not code:
                    assert not answers or offset >= answers[-1][1]
                    answers.append((node_id, offset))

        assert (await asked[old_leader].produce(records_of())).error_code == 0
        await ask_all()
        trio.store(old_leader).hold_watch()
        await trio.leads(preferred)  # the rebalancer
        held_s = trio.world.loop.now_s
        while trio.world.loop.now_s - held_s < 10:
            assert (await asked[preferred].produce(records_of(), acks=1)).error_code == 0
            await ask_all()
            await asyncio.sleep(0.1)
        assert trio.partition(old_leader).is_leading  # for all that it knows
        trio.store(old_leader).hold_watch(False)
        await trio.until(lambda: not trio.partition(old_leader).is_leading)
        await trio.until(lambda: trio.partition(preferred).high_watermark == trio.partition(preferred).log_end_offset)
        await ask_all()
        assert {node_id for node_id, _ in answers} == {preferred, old_leader}
        assert answers[0] == (old_leader, 1) and answers[-1][1] > 50

    play(scenario, {"leader.imbalance.check.interval.seconds": "15", **QUICK}, replicates=True)


Step = tuple[str, int]
waits_ms = st.sampled_from([1, 5, 20, 100, 1_000, 5_000])
LEADER = 0
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["die", "kill", "pause", "hold watch"]), st.sampled_from([LEADER, *NODES])),
        st.tuples(st.sampled_from(["cut", "die"]), st.sampled_from(NODES)),
        st.tuples(st.sampled_from(["heal", "start all", "resume all", "hear again"]), st.just(0)),
        st.tuples(st.just("move"), st.sampled_from(NODES)),
        st.tuples(st.just("wait"), waits_ms),
    ),
    min_size=10,
    max_size=30,
)


class Reader:
    """One client that asks for offsets and names no epoch. What it starts to ask after it was told cannot be less."""

    def __init__(self, trio: Trio) -> None:
        self.trio = trio
        self.latest = 0
        self.first: dict[int, int] = {}
        """By time: the first record at or after it."""
        self.clients: dict[int, Client] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, node_id: int) -> None:
        self.tasks.append(asyncio.create_task(self._ask(node_id)))

    async def _ask(self, node_id: int) -> None:
        least, found = self.latest, dict(self.first)
        try:
            client = self.clients.get(node_id)
            if client is None:
                client = self.clients[node_id] = await self.trio.client(node_id)
            code, offset = await told(client)
            answers = {time: await told(client, time) for time in (NOW_MS + 3, NOW_MS + 10)}
            _, start = await told(client, EARLIEST)
        except (PeerLost, OSError):
            self.clients.pop(node_id, None)
            return
        assert start <= 0
        if not code:
            assert offset >= least, f"node {node_id} told {offset} after {least} was told"
            self.latest = max(self.latest, offset)
        for time, (code, offset) in answers.items():
            if not code:
                assert offset == found.get(time, offset), f"{time} was at {found[time]} and is at {offset}"
                if offset >= 0:
                    self.first[time] = offset


class Play:
    """One step after another; a node that is asked to do what it cannot do does nothing."""

    def __init__(self, trio: Trio) -> None:
        self.trio = trio
        self.reader = Reader(trio)
        self.sent = 0
        self.waiting: list[asyncio.Task[Any]] = []
        self.elections: list[asyncio.Task[Any]] = []
        """In the controllers' processes: those of a dead one never end."""

    async def run(self, script: Sequence[Step]) -> None:
        for what, about in script:
            self.step(what, about)
            await asyncio.sleep(about / 1000 if what == "wait" else 0.004)
            self.read_all()
        for what in ("resume all", "hear again", "start all", "heal"):
            self.step(what, 0)
        for _ in range(40):
            self.read_all()
            await asyncio.sleep(1)
        await asyncio.gather(*self.reader.tasks)
        for task in self.waiting:
            task.cancel()
        await asyncio.gather(*self.waiting, return_exceptions=True)
        # It is back, and tells what it should.
        leader = await self.trio.leads(self.trio.record().leader)
        assert leader.high_watermark == leader.log_end_offset == self.reader.latest

    def step(self, what: str, about: int) -> None:
        if what in ("die", "kill", "pause", "hold watch", "cut"):
            self._strike(what, about)
        elif what == "append":
            for n in NODES:
                self._spawn(self._append(n, about))
        elif what == "move":
            self._move(about)
        elif what == "heal":
            self.trio.world.network.heal_all()
        elif what != "wait":
            for node in self.trio.world.nodes:
                if what == "resume all":
                    node.resume()
                elif what == "start all" and not node.is_alive:
                    node.start()
                elif what == "hear again" and node.store is not None:
                    node.store.hold_watch(False)

    def _strike(self, what: str, about: int) -> None:
        serving = [node.node_id for node in self.trio.world.nodes if node.is_serving]
        node_id = self.trio.record().leader if about == LEADER and serving else about
        if node_id not in serving:
            return
        node = self.trio.world.nodes[node_id - 1]
        if what == "die":
            certainly_dead(self.trio, node_id)
        elif what == "kill":
            node.kill()
        elif what == "pause":
            node.pause()
        elif what == "hold watch":
            self.trio.store(node_id).hold_watch()
        else:
            other = node_id % 3 + 1
            self.trio.world.network.cut(f"node{node_id}", f"node{other}")
            self.trio.world.network.cut(f"node{other}", f"node{node_id}")

    def read_all(self) -> None:
        for n in NODES:
            self.reader.ask(n)

    def _spawn(self, work: Any) -> None:
        self.waiting.append(asyncio.create_task(work))

    async def _append(self, node_id: int, count: int) -> None:
        """Whoever leads takes it. Nobody is asked again."""
        try:
            client = await self.trio.client(node_id)
            for _ in range(count):
                self.sent += 1
                await client.produce(records_of([b"v"], timestamps=[NOW_MS + self.sent]), acks=1)
        except (PeerLost, OSError):
            return

    def _move(self, to: int) -> None:
        """The preferred leader changes, and the controller moves the leadership there, if it finds one that agrees."""
        for node in self.trio.world.nodes:
            if not node.is_serving or node.node is None or node.node.broker is None:
                continue
            controller = node.node.broker.controller
            if not controller.is_controller:
                continue
            record = self.trio.record()
            order = (to, *(n for n in record.replicas if n != to))
            epoch = record.partition_epoch + 1
            self.trio.write(replace(record, replicas=order, partition_epoch=epoch))
            elect = partial(controller.elect_leaders, "preferred", [(TOPIC, 0)])
            self.elections.append(self.trio.world.loop.spawn(node.process, elect()))
            return


# To make a failure smaller takes minutes: a hunt has the time for it.
HUNTING = not settings().derandomize


@settings(
    max_examples=30,
    report_multiple_bugs=False,
    phases=[phase for phase in Phase if HUNTING or phase not in (Phase.shrink, Phase.explain)],
)
@given(steps)
def test_t207_2_whatever_happens_to_leaders_what_a_client_was_told_never_goes_back(script: list[Step]) -> None:
    """Also G2, and T207-11 for two times. Elections are clean: nothing loses power."""

    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3])
        await Play(trio).run(script)

    play(scenario, QUICK | {"broker.session.timeout.ms": "3000"}, replicates=True)
