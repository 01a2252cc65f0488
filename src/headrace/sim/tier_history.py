"""What observers and clients saw of a tier: a part of the history."""

from typing import NamedTuple, TypeAlias

from headrace.model import TopicPartition

EXPIRES = 1 << 62


class Covered(NamedTuple):
    """What a replica in sync of a tiered partition has: on its own disk, and in segments of the tier that it could
    serve and that are really there. `log_start`: where the log begins by whatever is known of it."""

    at_s: float
    node_id: int
    partition: TopicPartition
    log_start: int
    local_start: int
    end: int
    remote: tuple[tuple[int, int], ...]
    """First and last offset of each."""


class Dangling(NamedTuple):
    """What the metadata store points to, or a finished row of its manifest, is not in the object store."""

    at_s: float
    partition: TopicPartition
    key: str


class Orphan(NamedTuple):
    """An object that nothing names, when everything has healed and expiry has had its time."""

    at_s: float
    key: str


class Damaged(NamedTuple):
    """A remote segment is not what its row says, when everything has healed."""

    key: str
    problem: str


class Span(NamedTuple):
    """A batch that somebody was handed, and the epoch of its first offset in the list of the leader that answered."""

    base_offset: int
    last_offset: int
    epoch: int
    leaders_epoch: int


class Answered(NamedTuple):
    """A leader answered a fetch of a tiered partition with these batches."""

    at_s: float
    client: str
    partition: TopicPartition
    asked_offset: int
    spans: tuple[Span, ...]


class TurnedAway(NamedTuple):
    """A leader said that an offset is out of range. Where its log began and what was committed when it said so."""

    at_s: float
    client: str
    partition: TopicPartition
    asked_offset: int
    log_start: int
    high_watermark: int


class Passed(NamedTuple):
    """A consumer began at the beginning, and has come to where the log ended then. `client` is unique to each pass."""

    asked_s: float
    at_s: float
    client: str
    partition: TopicPartition
    log_start: int
    """When it was done: what is below may have gone meanwhile."""
    end: int


class Began(NamedTuple):
    """Where a partition begins when everything has healed."""

    partition: TopicPartition
    offset: int


class DeleteAsked(NamedTuple):
    """Records below this offset are about to be deleted; `EXPIRES`: they may go by themselves."""

    at_s: float
    partition: TopicPartition
    offset: int


class DeleteDone(NamedTuple):
    """A leader said that the partition begins there now."""

    at_s: float
    partition: TopicPartition
    offset: int


class PointerMoved(NamedTuple):
    """A leader of that epoch put another manifest in force, when the metadata store had a leader of `leaders_epoch`."""

    at_s: float
    partition: TopicPartition
    epoch: int
    leaders_epoch: int


class Elected(NamedTuple):
    """The leader of a tiered partition changed. What is not known for sure at that moment is `perhaps`."""

    at_s: float
    partition: TopicPartition
    replicas: tuple[int, ...]
    before: int
    after: int
    able: frozenset[int]
    """In sync, live and intact."""
    perhaps_able: frozenset[int]
    thin: frozenset[int]
    perhaps_thin: frozenset[int]
    is_unclean: bool


TierEvent: TypeAlias = (
    Covered
    | Dangling
    | Orphan
    | Damaged
    | Answered
    | TurnedAway
    | Passed
    | Began
    | DeleteAsked
    | DeleteDone
    | PointerMoved
    | Elected
)
