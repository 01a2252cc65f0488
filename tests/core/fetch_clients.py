"""The clients of the twin test: what they wish for, and what they wait for."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import Phase, settings
from hypothesis import strategies as st

from headrace.core.fetch_answer import Fetch
from headrace.core.fetch_entries import Entry, TopicKey
from headrace.core.fetch_session import Fetcher
from tests.core.fetch_world import FOLLOWER, Ask, FakeReplica, Reply, World
from tests.core.naive_fetch import NaiveFetch, NaiveSession
from tests.core.replicas import nodes_with

NAMES = ("a", "b")
INDEXES = (0, 1, 2)
UNLIMITED = 1 << 30
UNKNOWN_ID = b"?" * 16

offsets = st.integers(0, 12)
sizes = st.sampled_from([70, 100, 400])
replicas = st.tuples(st.sampled_from(NAMES), st.sampled_from(INDEXES))


class Wish(NamedTuple):
    """An ask before it is known where the offsets of its partition are."""

    at: tuple[str, int]
    place: str
    max_bytes: int
    leader_epoch: int | None  # the partition's own
    last_fetched_epoch: int | None

    def asked(self, key: TopicKey, replica: FakeReplica | None) -> Ask:
        index = self.at[1]
        if replica is None:
            return Ask(key, index, 0, self.max_bytes)
        offset = {
            "end": replica.log_end_offset,
            "high watermark": replica.high_watermark,
            "stable": replica.last_stable_offset,
            "start": replica.log_start_offset,
            "below start": replica.log_start_offset - 1,
            "beyond end": replica.log_end_offset + 1,
        }[self.place]
        leader_epoch = replica.leader_epoch if self.leader_epoch is None else self.leader_epoch
        last_fetched = replica.leader_epoch if self.last_fetched_epoch is None else self.last_fetched_epoch
        return Ask(key, index, offset, self.max_bytes, leader_epoch, last_fetched)


wishes = st.lists(
    st.builds(
        Wish,
        at=replicas,
        place=st.sampled_from(["end", "end", "high watermark", "stable", "start", "below start", "beyond end"]),
        max_bytes=st.sampled_from([0, 90, 250, 1 << 20, 1 << 20]),
        leader_epoch=st.sampled_from([-1, -1, None, None, 0, 2]),
        last_fetched_epoch=st.sampled_from([-1, -1, None, None, 0, 1, 9]),
    ),
    min_size=1,
    max_size=5,
)
waits = st.sampled_from([0, 500, 500])
bytes_min = st.sampled_from([0, 1, 1, 150, 600])
bytes_max = st.sampled_from([0, 100, 300, UNLIMITED, UNLIMITED])


class WorldThatWaits(World):
    """Collects what it should answer instead of answering it, as the end of a loop's turn does."""

    def __init__(self) -> None:
        self.woken: dict[Fetch, None] = {}
        self.nodes = nodes_with(0, FOLLOWER.replica_id)
        super().__init__(slots_max=4, partitions_max=20)

    def host(self, topic: str, topic_id: bytes, index: int) -> FakeReplica:
        replica = super().host(topic, topic_id, index)
        replica.lead_follower(self.nodes, lambda: self.now_ms)
        return replica

    def answer(self, woken: Iterable[Fetch]) -> None:
        self.woken.update(dict.fromkeys(woken))


@dataclass(eq=False)
class Client:
    """One fetcher with one session, its twin, and the fetch that it waits for."""

    fetcher: Fetcher
    version: int
    twin: NaiveSession
    acl_version: int
    session_id: int = 0
    epoch: int = 0
    parked: Fetch | None = None
    asked: NaiveFetch | None = None
    turns: dict[Entry, tuple[int, int]] = field(default_factory=dict)
    advanced: list[Wish] = field(default_factory=list)

    def count_turns(self, waiting: list[Entry], reply: Reply) -> None:
        """Everybody who stays ready is served within as many answers as there were ready ones when he came.

        Who waits for the tier is as ready as the others, once it is at hand.
        """
        for entry in waiting:
            there = entry.replica
            is_remote = there is not None and entry.fetch_offset < there.local_log_start_offset
            if is_remote and isinstance(there, FakeReplica) and not there.is_at_hand:
                self.turns.pop(entry, None)
                continue
            waited, limit = self.turns.get(entry, (0, len(waiting)))
            part = reply.parts.get((entry.topic, entry.index))
            served = part is not None and (part.records or part.error_code)
            self.turns[entry] = (0, len(waiting)) if served else (waited + 1, limit)
            assert waited < limit, f"{entry.topic!r}-{entry.index} starves"


def check_in_sync(replica: FakeReplica) -> None:
    """Until when its follower counts as in sync."""
    assert replica.leadership is not None
    follower = replica.leadership.followers[FOLLOWER.replica_id]
    until_ms = follower.caught_up_ms
    assert until_ms <= replica.epoch_began_ms or replica.ends[until_ms] <= replica.reached
    speaker = follower.entry
    if speaker is not None:
        assert speaker.replica is replica and speaker not in speaker.session.lost
        in_step = follower.is_in_step(replica.log_end_offset)
        assert follower.was_in_step == in_step
        if in_step and follower.healed_receipt != speaker.session.receipts:
            until_ms = max(until_ms, speaker.session.last_fetch_ms)
    assert until_ms >= replica.caught_up_ms


# To make a failure smaller takes minutes: a hunt has the time for it. What Hypothesis remembers of each example takes
# memory, so that a hunt has more of them than the default, but not as many as of a plain property.
HUNTING = not settings().derandomize
MACHINE_SETTINGS = settings(
    max_examples=settings().max_examples // (4 if HUNTING else 1),
    stateful_step_count=50,
    report_multiple_bugs=False,
    phases=[phase for phase in Phase if HUNTING or phase is not Phase.shrink],
)
