"""Three replicas of one partition, made of the pure parts only, with a controller that decides at once.

Whatever is appended, fetched, elected, killed and restarted, in whatever order records reach the nodes: what was
committed stays, logs agree below the high watermark, and what a client was told of the latest offset never goes back:
T6-1, T6-2, T207-2, G1 and G2 without wire, store and time.
"""

from dataclasses import dataclass, field

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.config import BrokerConfig, TopicConfig
from headrace.core.alter_partition import judge_alter
from headrace.core.cluster import (
    BrokerGone,
    BrokerPut,
    ClusterImage,
    IsrMember,
    PartitionPut,
    PartitionRecord,
    RegisteredBroker,
    TopicPut,
)
from headrace.core.election import elect, elect_preferred
from headrace.core.epochs import EpochList
from headrace.core.fetch_entries import Divergence, Entry, View, fault_of
from headrace.core.fetch_session import Fetcher, FetchSession
from headrace.core.partition import Partition
from headrace.core.producers import ProducerTable
from headrace.core.truncation import AskEarliest, RestartAt, TruncateTo, repair, truncation_offset
from headrace.errors import ErrorCode
from headrace.wire.messages.fetch import FetchPartition

T = bytes(range(16))
NODES = (0, 1, 2)
CONFIG = TopicConfig.resolve(BrokerConfig.parse({}), {"min.insync.replicas": "1"})
nodes = st.sampled_from(NODES)


@dataclass
class ListLog:
    """Each record is the epoch that it was written in, and a number of its own."""

    records: list[tuple[int, int]] = field(default_factory=list)
    epochs: EpochList = field(default_factory=EpochList)
    producers: ProducerTable = field(default_factory=ProducerTable)
    log_start_offset: int = 0

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    def readable_bytes(self, offset: int, limit_offset: int) -> int | None:
        return limit_offset - offset

    def append(self, epoch: int, number: int) -> None:
        self.epochs.assign(epoch, len(self.records))
        self.records.append((epoch, number))

    def truncate(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)


class Node:
    def __init__(self, broker_id: int, broker_epoch: int, log: ListLog, known_high_watermark: int = 0) -> None:
        self.id = broker_id
        self.epoch = broker_epoch
        self.log = log
        self.partition: Partition[ListLog] = Partition("t", T, 0, 0, CONFIG, lambda _: log)
        self.partition.stop_serving()
        assert self.partition.log is log
        self.partition.log_found(0, log.log_end_offset, known_high_watermark)
        self.record: PartitionRecord | None = None


class Replication(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.rev = 100
        self.numbers = 0
        self.image = ClusterImage(0, {})
        first = PartitionRecord(NODES, tuple(IsrMember(n, 10 + n) for n in NODES), 0)
        self.image.apply([TopicPut("t", T, [first], [self.rev], self.rev)])
        self.nodes: dict[int, Node | None] = {}
        for n in NODES:
            self.nodes[n] = Node(n, 10 + n, ListLog())
            self.register(n, 10 + n, -1, 10 + n)
        self.stopped: dict[int, tuple[Node, int]] = {}  # with how much of the log is left
        self.committed: list[tuple[int, int]] = []
        self.latest_told = 0
        self.seen: dict[tuple[int, int, int], int] = {}
        self.is_over = False  # no intact member is left: nothing is promised any more
        for n in NODES:
            self.learn(n)

    def register(self, broker_id: int, epoch: int, last_epoch: int, intact_since: int) -> None:
        broker = RegisteredBroker(
            broker_id, epoch, "h", 9092, None, False, intact_since=intact_since, last_epoch=last_epoch, mod_rev=epoch
        )
        self.image.apply([BrokerPut(broker)], rev=epoch)

    @property
    def record(self) -> PartitionRecord:
        return self.image.topics["t"].partitions[0]

    def write(self, record: PartitionRecord) -> None:
        self.rev += 1
        self.image.apply([PartitionPut(T, 0, record, self.rev)], rev=self.rev)

    def control(self) -> None:
        elected = elect(self.record, T, 0, self.image, unclean=False)
        if elected is not None:
            self.write(elected.record)
            self.is_over |= elected.kind == "not intact"

    # What happens.

    @rule(count=st.integers(1, 3), oldest=st.booleans())
    def append(self, count: int, oldest: bool) -> None:
        """At any node that believes to lead."""
        serving = [node for node in self.nodes.values() if node is not None and not node.partition.error]
        if not serving:
            return
        node = sorted(serving, key=lambda node: node.partition.leader_epoch)[0 if oldest else -1]
        for _ in range(count):
            self.numbers += 1
            node.log.append(node.partition.leader_epoch, self.numbers)
        node.partition.assigned_end_offset = node.log.log_end_offset
        node.partition.written_up_to(node.log.log_end_offset, self.now_ms)
        self.note_committed(node)

    @rule(n=nodes)
    def learn(self, n: int) -> None:
        """The newest record reaches a node, sooner or later."""
        node = self.nodes[n]
        if node is None or node.record is self.record:
            return
        node.record = self.record
        if self.record.leader == n:
            node.partition.lead(self.record, node.epoch, self.now_ms, self.image)
            self.note_committed(node)
        else:
            node.partition.follow(self.record)

    @rule(n=nodes, count=st.integers(0, 3))
    def learn_and_fetch(self, n: int, count: int) -> None:
        for node in NODES:
            self.learn(node)
        self.fetch(n, count)

    @rule(count=st.integers(0, 3))
    def all_fetch(self, count: int) -> None:
        for n in NODES:
            self.fetch(n, count)

    @rule(n=nodes, count=st.integers(0, 3))
    def fetch(self, n: int, count: int) -> None:
        follower = self.nodes[n]
        if follower is None or follower.record is None or follower.record.leader in (-1, n):
            return
        leader = self.nodes[follower.record.leader]
        if leader is None:
            return
        own = follower.partition
        entry = self.entry_of(follower, leader)
        fault = fault_of(entry, leader.partition)
        if isinstance(fault, Divergence):
            self.cut(follower, truncation_offset(follower.log.epochs, own.log_end_offset, *fault))
        elif fault is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.repair(follower, leader)
        elif fault is None:
            records = leader.log.records[own.log_end_offset : own.log_end_offset + count]
            assert leader.partition.leadership is not None
            state = leader.partition.leadership.followers[n]
            state.speak_through(entry)
            state.listed(leader.partition.log_end_offset, self.now_ms, follower.epoch)
            state.release()
            leader.partition.commit(self.now_ms)
            self.note_committed(leader)
            for epoch, number in records:
                follower.log.append(epoch, number)
            own.follower_appended(follower.log.log_end_offset, leader.partition.high_watermark, 0)

    def entry_of(self, follower: Node, leader: Node) -> Entry:
        fetcher = Fetcher("User:node", follower.id, follower.epoch)
        session = FetchSession(fetcher, True, View.LOG_END, "", 0, lambda _: False)
        asked = FetchPartition(
            partition=0,
            current_leader_epoch=follower.partition.leader_epoch,
            fetch_offset=follower.partition.log_end_offset,
            last_fetched_epoch=follower.log.epochs.latest,
            log_start_offset=0,
            partition_max_bytes=1,
        )
        entry = Entry(session, T, asked)
        entry.replica = leader.partition
        return entry

    def cut(self, node: Node, offset: int) -> None:
        before = len(node.log.records), node.log.epochs.entries
        node.log.truncate(offset)
        node.partition.truncated_to(offset)
        assert (len(node.log.records), node.log.epochs.entries) != before, "a truncation that goes on for ever"

    def repair(self, follower: Node, leader: Node) -> None:
        end = follower.partition.log_end_offset
        verdict = repair(end, leader.partition.log_end_offset, None)
        if isinstance(verdict, AskEarliest):
            verdict = repair(end, leader.partition.log_end_offset, 0)
        assert not isinstance(verdict, RestartAt)
        if isinstance(verdict, TruncateTo):
            self.cut(follower, verdict.offset)

    @rule(n=nodes, applied=st.booleans(), ms=st.sampled_from([0, 40_000]))
    def change_isr(self, n: int, applied: bool, ms: int) -> None:
        """A proposal, which the controller may never see."""
        self.now_ms += ms
        node = self.nodes[n]
        leadership = node.partition.leadership if node is not None else None
        if node is None or leadership is None:
            return
        partition = node.partition
        proposal = leadership.wanted_change(
            self.now_ms,
            log_end=partition.log_end_offset,
            high_watermark=partition.high_watermark,
            log_start=0,
        )
        if proposal is None and leadership.is_pending:
            proposal = leadership.sent[-1]
        elif proposal is not None:
            leadership.proposed(proposal, self.now_ms)
        if proposal is None or not applied:
            return
        isr, leader_epoch, partition_epoch, resume = proposal
        judged = judge_alter(self.image, n, node.epoch, T, 0, leader_epoch, isr, False, partition_epoch, resume)
        if isinstance(judged, PartitionRecord):
            self.write(judged)
        elif leadership.answered(judged, proposal, self.now_ms) == "resume":
            leadership.proposed(leadership.resume(), self.now_ms)

    @rule(n=nodes, kept=st.floats(0, 1), power=st.booleans())
    def stop(self, n: int, kept: float, power: bool) -> None:
        """It dies, and its lease ends. With its power goes a part of the log."""
        node = self.nodes[n]
        if node is None:
            return
        left = int(len(node.log.records) * kept) if power else len(node.log.records)
        self.stopped[n] = (node, left)
        self.nodes[n] = None
        self.image.apply([BrokerGone(n)])
        self.control()

    @rule(n=nodes)
    def start(self, n: int) -> None:
        if n not in self.stopped:
            return
        node, left = self.stopped.pop(n)
        is_intact = left == len(node.log.records)
        node.log.truncate(left)
        self.rev += 1
        since = 10 + n if is_intact else self.rev
        self.register(n, self.rev, node.epoch, since)
        self.nodes[n] = Node(n, self.rev, node.log, min(node.partition.high_watermark, left) // 2)
        self.control()

    @rule()
    def move_to_preferred(self) -> None:
        """The old leader is asked first."""
        record = self.record
        leader = self.nodes.get(record.leader)
        moved = elect_preferred(record, T, 0, self.image)
        if leader is None or isinstance(moved, ErrorCode):
            return
        if leader.partition.step_down(record.partition_epoch, self.now_ms) is ErrorCode.NONE:
            self.write(moved)

    @invariant()
    def the_latest_offset_that_a_client_is_told_never_falls(self) -> None:
        for node in self.nodes.values():
            if node is None or node.partition.error or node.partition.is_list_guarded or self.is_over:
                continue
            assert node.partition.high_watermark >= self.latest_told
            self.latest_told = node.partition.high_watermark

    # What always holds.

    def note_committed(self, leader: Node) -> None:
        if self.is_over or not leader.partition.is_leading:
            return
        shown = leader.log.records[: leader.partition.high_watermark]
        common = min(len(shown), len(self.committed))
        assert shown[:common] == self.committed[:common], "what was committed is gone"
        self.committed += shown[common:]

    @invariant()
    def logs_agree_where_anybody_may_read(self) -> None:
        if self.is_over:
            return
        for node in self.nodes.values():
            if (
                node is not None
                and node.partition.is_leading
                and node.partition.leader_epoch == self.record.leader_epoch
            ):
                assert node.log.records[: len(self.committed)] == self.committed

    @invariant()
    def offsets_are_in_order_and_the_high_watermark_of_a_leader_never_falls(self) -> None:
        for node in self.nodes.values():
            if node is None:
                continue
            partition = node.partition
            assert partition.log_start_offset <= partition.high_watermark <= partition.log_end_offset
            leadership = partition.leadership
            if leadership is not None:
                key = (node.id, node.epoch, partition.leader_epoch)
                assert partition.high_watermark >= self.seen.get(key, 0)
                self.seen[key] = partition.high_watermark

    def teardown(self) -> None:
        """Once everybody is back and quiet, all logs are the same, byte by byte, epochs aside that have no records."""
        for n in NODES:
            self.start(n)
        for _ in range(200):
            for n in NODES:
                self.learn(n)
                self.fetch(n, 3)
                self.change_isr(n, True, 10)
        leader = self.nodes[self.record.leader]
        assert leader is not None and leader.partition.is_leading
        for node in self.nodes.values():
            assert node is not None and node.log.records == leader.log.records
        assert sorted(self.record.isr_ids) == [0, 1, 2]
        assert leader.partition.high_watermark == leader.partition.log_end_offset


TestReplication = Replication.TestCase
# To make a failure smaller takes minutes: a hunt has the time for it.
HUNTING = not settings().derandomize
TestReplication.settings = settings(
    max_examples=2 * settings().max_examples,
    stateful_step_count=60,
    report_multiple_bugs=False,
    phases=[phase for phase in Phase if HUNTING or phase is not Phase.shrink],
)
