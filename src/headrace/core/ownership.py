"""Who owns what, as one broker knows it: claims by generation, and owners by client.id with tokens.

An *entry* is one resource in one group. Its *tenure* is the live ownership; without one there may be a generation that
the metadata store remembers, the entry's *key*. Peers are connections: known here by who they say they are.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.core.cluster import OwnedRecord
from headrace.core.ownership_tokens import Token, token_of
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.core.ownership_gate import Gate

PRODUCE, FETCH = 1, 2
"""Bits of what an owner may have for itself."""

NO_FENCE = -1


class Peer(Protocol):
    """A connection. Equal to itself only."""

    principal: str
    client_id: str | None
    peer: str
    closing: bool


class _Nobody:
    principal = ""
    client_id: str | None = None
    peer = "?"
    closing = False


NOBODY: Peer = _Nobody()
"""Stands for a connection where there is none yet."""


class Identity(NamedTuple):
    """Who holds a generation over several connections. Without a holder nobody is the same as anybody."""

    principal: str
    holder: str

    def is_same(self, other: "Identity") -> bool:
        return bool(self.holder) and self == other


class Tenure:
    """One live ownership. It counts from the moment in which it is granted, and is told once it is confirmed."""

    __slots__ = (
        "exclusive",
        "fence_offset",
        "generation",
        "granted_ms",
        "identity",
        "is_confirmed",
        "is_implied",
        "leader_epoch",
        "needs_key",
        "peers",
        "record",
        "waiting",
    )

    def __init__(self, generation: int, identity: Identity, peers: Iterable[Peer], *, is_implied: bool = False) -> None:
        self.generation = generation
        self.identity = identity
        self.is_implied = is_implied
        self.peers: dict[Peer, None] = dict.fromkeys(peers)
        """One that claimed; or all that share a client.id, which ends with the last of them."""
        self.exclusive = 0
        self.fence_offset = NO_FENCE
        self.leader_epoch = -1
        self.granted_ms = 0
        self.is_confirmed = False
        self.record: OwnedRecord | None = None
        """What the store remembers, or will, after its end."""
        self.needs_key = False
        """The metadata store does not remember it yet, and must before it is told."""
        self.waiting: list[Callable[[ErrorCode], None]] = []
        """Who is told how the confirmation ends."""


class Key(NamedTuple):
    """What the metadata store remembers, and the revision that wrote it; nothing with revision 0: never anything."""

    record: OwnedRecord | None
    rev: int

    @property
    def compared(self) -> int:
        """The revision that a write compares: 0 for a key that is not there."""
        return 0 if self.record is None else self.rev


NO_KEY = Key(None, 0)


class Refused(NamedTuple):
    """The last claimer that was sent away."""

    client_id: str
    address: str
    generation: int
    wall_ms: int


class Entry:
    __slots__ = (
        "doubt",
        "expires_ms",
        "gate",
        "group",
        "is_expiring",
        "key",
        "refused",
        "resource",
        "standbys",
        "tenure",
        "writing",
    )

    def __init__(self, group: str, resource: str, gate: "Gate | None", key: Key = NO_KEY) -> None:
        self.group = group
        self.resource = resource
        self.gate = gate
        """Of the partition; None for a name."""
        self.tenure: Tenure | None = None
        self.key = key
        self.expires_ms = 0
        """When the key is forgotten, while nobody owns it."""
        self.is_expiring = False
        """A timer looks after it."""
        self.doubt: OwnedRecord | None = None
        """Written, perhaps: the store did not say."""
        self.writing = 0
        """Writes of the key that are under way."""
        self.standbys: dict[object, None] = {}
        self.refused: Refused | None = None

    def __str__(self) -> str:
        return f"{self.resource} in group {self.group}"

    def retained(self, now_ms: int) -> OwnedRecord | None:
        """What counts of the key while nobody owns the resource."""
        record = self.key.record
        if record is None or now_ms >= self.expires_ms:
            return None
        return record if record.topic_id == ("" if self.gate is None else self.gate.topic_id) else None

    @property
    def is_idle(self) -> bool:
        """Nobody would miss it."""
        return (
            self.tenure is None
            and self.key.record is None
            and self.doubt is None
            and not self.writing
            and not self.standbys
        )


class Member:
    """What a connection has to do with ownership."""

    __slots__ = ("bound", "entries", "group", "has_lost", "keep_alive", "peer", "shut_out")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.group: str | None = None
        """The one that it may claim in."""
        self.entries: dict[Entry, None] = {}
        self.bound: dict[str, None] = {}
        """Other connections of its principal with one of these client ids stand for it."""
        self.shut_out: set[Gate] = set()
        """Where it may not even claim by its client.id."""
        self.has_lost = False
        """An ownership was dropped, not severed, since it last asked."""
        self.keep_alive: Callable[[], None] | None = None
        """Answers its request that waits for a loss."""


class Book:
    """Who is bound to whom."""

    def __init__(self, reads_tokens: Callable[[], bool] = lambda: True) -> None:
        """`reads_tokens`: whether a client.id may claim."""
        self.members: dict[Peer, Member] = {}
        self._reads_tokens = reads_tokens
        self._bound: dict[tuple[str, str], dict[Member, None]] = {}

    def member(self, peer: Peer) -> Member:
        known = self.members.get(peer)
        if known is None:
            known = self.members[peer] = Member(peer)
        return known

    def bind(self, member: Member, client_id: str) -> None:
        member.bound[client_id] = None
        self._bound.setdefault((member.peer.principal, client_id), {})[member] = None

    def unbind(self, member: Member) -> None:
        for client_id in member.bound:
            at = (member.peer.principal, client_id)
            members = self._bound[at]
            del members[member]
            if not members:
                del self._bound[at]
        member.bound.clear()

    def forget(self, peer: Peer) -> Member | None:
        member = self.members.pop(peer, None)
        if member is not None:
            self.unbind(member)
        return member

    def bound_to(self, peer: Peer) -> Iterable[Member]:
        """Members for which this connection stands."""
        if peer.client_id is None or not self._bound:
            return ()
        return self._bound.get((peer.principal, peer.client_id), ())

    def token_of(self, peer: Peer) -> Token | None:
        token = token_of(peer.client_id)
        return token if token is not None and self._reads_tokens() else None

    def is_of(self, peer: Peer, tenure: Tenure) -> bool:
        """Whether the connection owns it, or stands for one that does."""
        return peer in tenure.peers or any(member.peer in tenure.peers for member in self.bound_to(peer))

    def groups_of(self, peer: Peer) -> set[str]:
        """Groups of which the connection is one, by a claim of its own or of one that it stands for."""
        own = self.members.get(peer)
        groups = {member.group for member in self.bound_to(peer)}
        if own is not None:
            groups.add(own.group)
        return {group for group in groups if group is not None}
