"""What clients and observers saw, in the order in which they saw it. Checkers read it afterwards.

Values are unique: each record that a client ever sends is another one.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from headrace.model import TopicPartition
from headrace.sim.tier_history import TierEvent


class Sent(NamedTuple):
    """A producer took the record; the order of these is the order of its calls."""

    at_s: float
    client: str
    partition: TopicPartition
    value: bytes


class Acked(NamedTuple):
    """With acks=all."""

    at_s: float
    client: str
    partition: TopicPartition
    offset: int
    value: bytes


class GivenUp(NamedTuple):
    """The record may be stored, or not."""

    at_s: float
    client: str
    partition: TopicPartition
    value: bytes


class Read(NamedTuple):
    """A consumer that goes on where it was was handed a record."""

    at_s: float
    client: str
    partition: TopicPartition
    offset: int
    value: bytes


class ToldEnd(NamedTuple):
    """The answer to a question for the latest offset."""

    asked_s: float
    at_s: float
    client: str
    partition: TopicPartition
    offset: int
    asked_epoch: int = -1
    """The leader epoch that the question named; -1: none."""
    leader_epoch: int = -1
    """The one in which it was answered; -1: not told."""


class Seen(NamedTuple):
    """Somebody who reads here and there was handed a record."""

    at_s: float
    client: str
    partition: TopicPartition
    offset: int
    value: bytes


class Underacked(NamedTuple):
    """A leader moved the high watermark while fewer members than wanted were in the ISR."""

    at_s: float
    node_id: int
    partition: TopicPartition
    epoch: int
    members: int


class TopicChanged(NamedTuple):
    """A topic was created with that id, or deleted; `is_certain` is false when the cluster could not say whether."""

    at_s: float
    topic: str
    topic_id: bytes
    created: bool
    is_certain: bool


class TopicsFound(NamedTuple):
    """What the cluster listed when everything had healed; `asked_s`: when it was asked."""

    asked_s: float
    topic_ids: frozenset[bytes]


class LeaderAcked(NamedTuple):
    """That node told a producer that its records are stored."""

    at_s: float
    node_id: int
    partition: TopicPartition
    epoch: int


class Watermark(NamedTuple):
    """The high watermark of a leader. `life` names the process."""

    at_s: float
    life: str
    partition: TopicPartition
    epoch: int
    offset: int


class Final(NamedTuple):
    """A record that is there when everything has healed."""

    partition: TopicPartition
    offset: int
    value: bytes


class Replica(NamedTuple):
    """The log of one replica when everything has healed, as a digest of its bytes."""

    partition: TopicPartition
    node_id: int
    start_offset: int
    end_offset: int
    digest: str


class TxnSent(NamedTuple):
    """A record was sent in a transaction, whose name is unique too."""

    at_s: float
    client: str
    txn: str
    partition: TopicPartition
    value: bytes


class TxnOffset(NamedTuple):
    """An offset of a group was sent in a transaction; each transaction has another one."""

    at_s: float
    group: str
    txn: str
    offset: int


class OffsetFinal(NamedTuple):
    """The offset of a group when everything has healed; -1: it has none."""

    group: str
    offset: int


class CommitAsked(NamedTuple):
    """All records of the transaction are stored, and its producer is about to commit it."""

    at_s: float
    client: str
    txn: str


class TxnEnded(NamedTuple):
    """`outcome` is committed, aborted, or unknown: then a commit was asked for, and the answer never came."""

    at_s: float
    client: str
    txn: str
    outcome: str


class CommittedRead(NamedTuple):
    """A consumer that reads only what is committed was handed a record."""

    at_s: float
    client: str
    partition: TopicPartition
    offset: int
    value: bytes


class CommittedFinal(NamedTuple):
    """A committed record that is there when everything has healed."""

    partition: TopicPartition
    offset: int
    value: bytes


class BatchCommitted(NamedTuple):
    """A driver heard that a batch of its query is committed."""

    at_s: float
    client: str
    batch_id: int


class BatchTold(NamedTuple):
    """Somebody asked, no earlier than `asked_s`, which batch was committed last; -1: none."""

    asked_s: float
    at_s: float
    client: str
    batch_id: int


class OwnGranted(NamedTuple):
    """A claim or a resumption was answered. `asked_s`: it was asked no earlier. `holder` is unique to each claimer.
    `leader_epoch` is that of the grant."""

    asked_s: float
    at_s: float
    holder: str
    group: str
    resource: str
    generation: int
    fence_offset: int
    leader_epoch: int = -1


class OwnReleased(NamedTuple):
    """A holder was about to let go, and others may use it. `from_s`: it may have held it, and let go of it, so early,
    in that leader epoch (-1: nobody had claimed it before); then the generation is not known, and 0."""

    from_s: float
    at_s: float
    group: str
    resource: str
    generation: int
    leader_epoch: int = -1


class OwnSent(NamedTuple):
    """By the owner of a partition in that generation, or by one that was it once; 0: it never was."""

    at_s: float
    holder: str
    partition: TopicPartition
    generation: int
    value: bytes


class OwnStored(NamedTuple):
    """It was told that the record is stored; `is_committed`: by all. The epoch is what the leader itself knew."""

    at_s: float
    value: bytes
    is_committed: bool
    leader_epoch: int = -1


class OwnRead(NamedTuple):
    """The same was handed a record for which it asked no earlier than `asked_s`, by such a leader."""

    asked_s: float
    at_s: float
    holder: str
    partition: TopicPartition
    generation: int
    offset: int
    value: bytes
    leader_epoch: int = -1


class GroupAssigned(NamedTuple):
    """A member was told what is its own in a generation. `who` stays the same for a static member that comes back."""

    at_s: float
    client: str
    who: str
    group: str
    generation: int
    partitions: tuple[TopicPartition, ...]


class GroupCommit(NamedTuple):
    """A member is about to commit an offset; each commit has another one."""

    at_s: float
    client: str
    group: str
    generation: int
    partition: TopicPartition
    offset: int


class GroupCommitted(NamedTuple):
    """The answer to it: an error code, or 0."""

    at_s: float
    group: str
    partition: TopicPartition
    offset: int
    code: int


class GroupTold(NamedTuple):
    """Somebody was told the committed offset; -1: there is none."""

    asked_s: float
    at_s: float
    client: str
    group: str
    partition: TopicPartition
    offset: int


class GroupSettled(NamedTuple):
    """All members are in one generation, and each partition is with one of them, for the first time since then."""

    healed_s: float
    at_s: float
    group: str


class NotRecovered(NamedTuple):
    at_s: float
    what: str


class Unhandled(NamedTuple):
    """An exception that no part of a node or client handled."""

    what: str


Event: TypeAlias = (
    Sent
    | Acked
    | GivenUp
    | Read
    | Seen
    | ToldEnd
    | Underacked
    | TopicChanged
    | TopicsFound
    | LeaderAcked
    | Watermark
    | Final
    | Replica
    | TxnSent
    | TxnOffset
    | OffsetFinal
    | CommitAsked
    | TxnEnded
    | CommittedRead
    | CommittedFinal
    | BatchCommitted
    | BatchTold
    | OwnGranted
    | OwnReleased
    | OwnSent
    | OwnStored
    | OwnRead
    | GroupAssigned
    | GroupCommit
    | GroupCommitted
    | GroupTold
    | GroupSettled
    | TierEvent
    | NotRecovered
    | Unhandled
)


class History:
    def __init__(self, now_s: Callable[[], float] = lambda: 0.0) -> None:
        self.now_s = now_s
        self.events: list[Event] = []
        self.add: Callable[[Event], None] = self.events.append
