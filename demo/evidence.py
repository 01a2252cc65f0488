"""What was seen while the demo ran, and read back afterwards. Promises are judged by this alone.

Times are seconds since the demo began.
"""

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import NamedTuple

from demo.orders import Sum, Window


class Acked(NamedTuple):
    """An order that all replicas in sync had, as the shop was told."""

    at_s: float
    number: int
    partition: int
    offset: int
    sent_s: float = 0.0


class Stored(NamedTuple):
    """A record of the topic, read back from its first offset on. -1: it is not an order."""

    partition: int
    offset: int
    number: int


class ToldEnd(NamedTuple):
    """A node answered a question for the latest offset; `error` is 0 when it told one."""

    asked_s: float
    at_s: float
    node_id: int
    partition: int
    error: int
    offset: int


class Led(NamedTuple):
    """From then on a node led a partition; -1: nobody."""

    at_s: float
    partition: int
    leader: int
    epoch: int
    because: str


class Happening(NamedTuple):
    at_s: float
    what: str


class QueryBatch(NamedTuple):
    """A micro-batch of a Spark query with orders, when it was over."""

    at_s: float
    query: str
    batch_id: int
    read: int
    """Orders that it has read since its first batch, by its offsets."""


class Summed(NamedTuple):
    """A sum in its topic, and when a broker appended it, by the broker's clock."""

    at_s: float
    window: Window
    told: Sum


class IdleFetch(NamedTuple):
    """Bytes of fetches without news: with a session, and without one (KIP-227)."""

    node_id: int
    partitions: int
    full_request: int
    full_answer: int
    idle_request: int
    idle_answer: int
    named: int = 0
    """Partitions in the answer to the same fetch, when one of them had got a record."""


@dataclass
class FailedReplica:
    """KIP-461: what became of a replica whose files could not be written, and of the others of its node."""

    node_id: int = -1
    name: str = ""
    reason: str = ""
    given_up: list[str] = field(default_factory=list)
    """All that its node had given up."""
    others_before: dict[str, int] = field(default_factory=dict)
    others_after: dict[str, int] = field(default_factory=dict)
    """How far it had copied the other partitions, when it failed and a while later."""
    in_epoch: int = -1
    back_in_epoch: int = -1
    """Of the partition's leader, when it was given up and when it was replicated again."""
    left_in_sync: bool = False
    sent_before: int = 0
    """Parcels that were acknowledged while it was whole."""
    back_in_sync: bool = False
    sent: list[int] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)
    """Parcels that were acknowledged, and those that are there."""
    is_equal: bool = False
    """In the end, to the other replicas, byte by byte."""


class Thin(NamedTuple):
    """One look at a partition of the wiped node with `headrace cluster why` (KIP-1303)."""

    at_s: float
    partition: int
    leader: int
    thin: bool
    can_lead: bool
    others_can_lead: bool
    because: str


@dataclass
class Wiped:
    """KIP-1023 and KIP-1303: a node that lost its disk."""

    node_id: int = -1
    killed_s: float = -1.0
    in_sync_s: float = -1.0
    """From its start until it was in every ISR."""
    log_records: int = 0
    copied_records: int = 0
    """In the logs of all partitions, and of these on its own disk when it was in sync."""
    tier_bytes: int = 0
    copied_bytes: int = 0
    tier_ends: dict[int, int] = field(default_factory=dict)
    """Of each partition the first offset that the tier did not have, before the node was started."""
    disk_starts: dict[int, int] = field(default_factory=dict)
    """Of each partition the first offset on its own disk."""
    looks: list[Thin] = field(default_factory=list)
    partition: int = -1
    """One that it is the first replica of."""
    other_epoch: int = -1
    """Of that, when another one led it in its place."""
    led_at_s: float = -1.0
    """When it led that again, by the looks."""


class LakeRow(NamedTuple):
    """A row of the table of orders, with every column."""

    number: int
    customer: str
    region: str
    cents: int
    at: datetime
    note: str
    event_date: date
    key: bytes
    topic: str
    partition: int
    offset: int


class Written(NamedTuple):
    """A record of the partition that is owned."""

    offset: int
    owner: str
    number: int


@dataclass
class Takeover:
    """An owner that was paused, another one that took over, and what the first one did when it came back."""

    old: str = ""
    new: str = ""
    old_generation: int = -1
    new_generation: int = -1
    fence: int = -1
    old_acked: list[int] = field(default_factory=list)
    new_acked: list[int] = field(default_factory=list)
    """What each was told to be stored."""
    new_acked_before_return: int = 0
    """How many of the new one's, when the old one came back."""
    last_words: str = ""
    """Of the old owner, when it was told that it is none any more."""
    raw_refusal: str = ""
    """What it heard when it then tried to write past its library; empty if nobody refused it."""
    raw_refusal_code: int = 0
    """Kafka's number of that error."""
    log: list[Written] = field(default_factory=list)


@dataclass
class Verified:
    """What `headrace pipeline verify` found in the topic of orders."""

    replicas: int = 0
    tiers: int = 0
    """Partitions whose segments in the tier were read."""
    batches: int = 0
    records: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    """Of each partition the offset up to which it was read."""


class Replica(NamedTuple):
    """The local log of one replica: offset of each batch, and the checksum of all its bytes."""

    partition: int
    node_id: int
    batches: dict[int, int]


@dataclass
class Evidence:
    played: list[str] = field(default_factory=list)
    """Acts, and steps of reading back, that came to their ends."""
    failures: list[str] = field(default_factory=list)
    """What did not come to its end, and why, one line each."""
    acked: list[Acked] = field(default_factory=list)
    closing: int = -1
    """The number of the last order."""
    stored: list[Stored] = field(default_factory=list)
    ends: list[ToldEnd] = field(default_factory=list)
    ask_failures: list[str] = field(default_factory=list)
    """Answers to questions for latest offsets that were none."""
    led: list[Led] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    batches: list[QueryBatch] = field(default_factory=list)
    idle: list[IdleFetch] = field(default_factory=list)
    failed_replica: FailedReplica = field(default_factory=FailedReplica)
    wiped: Wiped = field(default_factory=Wiped)
    takeover: Takeover = field(default_factory=Takeover)
    lake: list[LakeRow] = field(default_factory=list)
    lake_written_s: list[float] = field(default_factory=list)
    """When rows were written to the table, by its own history."""
    sums: list[Summed] = field(default_factory=list)
    """Records of the topic of sums, as who reads committed ones reads them."""
    sums_given_up: int = 0
    """Records of it that were never committed."""
    replicas: list[Replica] = field(default_factory=list)
    verified: Verified = field(default_factory=Verified)
    tier_segments: int = 0
    tier_bytes: int = 0
    tier_problems: list[str] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)
    """How often each broker's records say that it began to serve."""
    bugs: list[str] = field(default_factory=list)
    """What the records of brokers, and the way in which they ended, say of bugs."""
    killed_leader: int = -1
    killed_s: float = -1.0
    driver_killed_s: float = -1.0
    driver_killed_in: int = -1
    """The micro-batch of sums that was not finished then, by Spark's checkpoint."""
    sums_under_way: int = 0
    """Records of it that were in the topic, and not committed, just before."""
    closed_s: float = -1.0
    """When the shop began to close."""
