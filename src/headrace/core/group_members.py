"""Members of a classic group: who they are, what they can speak, and which topics they read."""

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.errors import ErrorCode

CONSUMER = "consumer"
"""The protocol type whose subscriptions name topics."""

Protocols = tuple[tuple[str, bytes], ...]
"""Names of assignors, best first, each with what the member says to whoever uses it."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to a join. `members` only for the leader."""

    error: ErrorCode
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class Synced(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinWaiter = Callable[[Joined], None]
SyncWaiter = Callable[[Synced], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A wish to join. `new_member_id` is used if the member has none."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    new_member_id: str
    needs_known_id: bool = False
    """A new member is only given its id, and comes again with it."""
    may_skip: bool = False
    """The client knows that a leader may be told not to assign anew."""
    waiter: JoinWaiter


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "expires_ms",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, join: Join) -> None:
        self.member_id = member_id
        self.instance_id = join.instance_id
        self.client_id = join.client_id
        self.client_host = join.client_host
        self.session_timeout_ms = join.session_timeout_ms
        self.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.protocols = join.protocols
        self.assignment = b""
        self.expires_ms = 0
        self.is_new = True
        """It has never been in a generation, and may not even know its id."""
        self.joining: JoinWaiter | None = None
        self.syncing: SyncWaiter | None = None

    @property
    def metadata_bytes(self) -> int:
        return sum(len(name) + len(metadata) for name, metadata in self.protocols)

    def metadata_for(self, protocol_name: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        allowed = set(candidates)
        return next(name for name, _ in self.protocols if name in allowed)


def common_protocols(members: Iterable[Member]) -> set[str]:
    """What all of them speak."""
    spoken = [{name for name, _ in member.protocols} for member in members]
    return set.intersection(*spoken) if spoken else set()


def elected_protocol(members: Sequence[Member]) -> str:
    """Each votes for the first in its list that all speak; the first of those with most votes wins."""
    candidates = common_protocols(members)
    votes = Counter(member.vote(candidates) for member in members)
    return votes.most_common(1)[0][0]


_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics that a consumer's metadata names; None if they are not what consumers send."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count > len(metadata):
            return None
        pos, topics = _HEAD.size, []
        for _ in range(count):
            end = pos + 2 + _LENGTH.unpack_from(metadata, pos)[0]
            if not pos + 2 <= end <= len(metadata):
                return None
            topics.append(metadata[pos + 2 : end].decode())
            pos = end
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
