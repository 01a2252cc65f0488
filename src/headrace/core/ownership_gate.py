"""What stands between clients and a partition that somebody owns, or that only its owner may use."""

from collections.abc import Callable
from enum import Enum, IntEnum

from headrace.core.ownership import FETCH, PRODUCE, Book, Entry, Peer, Tenure
from headrace.core.ownership_tokens import Token
from headrace.errors import ErrorCode


class Pass(IntEnum):
    ALLOWED = 0
    WAITS = 1
    """Its own grant is not confirmed yet."""
    UNOWNED = 2
    """Nobody may, until somebody owns it."""
    NOT_SERVED = 3
    """This node may not be the leader any more."""
    DENIED = 4
    """Another owns it."""


class Gated(Enum):
    """Why a consumer gets nothing of a partition of its session, where that is no error of the partition."""

    UNOWNED = 0
    WAITS = 1
    DENIED = 2


class Gate:
    """Of one partition in one leadership."""

    __slots__ = (
        "_book",
        "_fetch",
        "_may_serve",
        "_now_ms",
        "_produce",
        "entries",
        "groups",
        "had_owner",
        "is_loading",
        "topic_id",
    )

    def __init__(self, topic_id: str, book: Book, may_serve: Callable[[], bool], now_ms: Callable[[], int]) -> None:
        """`may_serve` says whether no other node can lead, and is asked at each use."""
        self.topic_id = topic_id
        self.entries: dict[str, Entry] = {}
        """By group."""
        self.groups = ("", "")
        """Whose owner alone may produce, and fetch, by the settings of the topic."""
        self.had_owner = False
        """Or somebody tried, in this leadership."""
        self.is_loading = False
        """What the store remembers of it may not all be known here."""
        self._book = book
        self._may_serve = may_serve
        self._now_ms = now_ms
        self._produce: list[str] = []
        self._fetch: list[str] = []

    @property
    def is_needed(self) -> bool:
        return self.had_owner or self.is_loading or bool(self.entries) or any(self.groups)

    def settle(self) -> None:
        """Finds out anew who keeps others out. To be called after every change of an entry or of a setting."""
        now_ms = self._now_ms()
        self._produce = self._gating(PRODUCE, self.groups[0], now_ms)
        self._fetch = self._gating(FETCH, self.groups[1], now_ms)

    def _gating(self, bit: int, configured: str, now_ms: int) -> list[str]:
        groups = [configured] if configured else []
        for group, entry in self.entries.items():
            tenure, record = entry.tenure, entry.retained(now_ms)
            bits = tenure.exclusive if tenure is not None else 0 if record is None else record.exclusive
            if bits & bit and group != configured:
                groups.append(group)
        return groups

    @property
    def _hangs_on_lease(self) -> bool:
        """Where nobody is kept out and nobody owned anything, a leader that is cut off is as good as another."""
        return self.had_owner or bool(self._produce) or bool(self._fetch)

    def judge(self, bit: int, peer: Peer) -> Pass:
        """Whether this connection may produce, or fetch, now."""
        if self.is_loading or (self._hangs_on_lease and not self._may_serve()):
            return Pass.NOT_SERVED
        if peer.closing:
            return Pass.DENIED
        book, entries = self._book, self.entries
        if entries:
            for group in book.groups_of(peer):
                owned = entries.get(group)
                if owned is not None and owned.tenure is not None and not book.is_of(peer, owned.tenure):
                    return Pass.DENIED
        token = book.token_of(peer)
        verdict = Pass.ALLOWED if token is None else self._judge_token(token, peer)
        for group in self._produce if bit == PRODUCE else self._fetch:
            verdict = max(verdict, self._judge_owner(entries.get(group), peer))
        return verdict

    def _judge_owner(self, owned: Entry | None, peer: Peer) -> Pass:
        if owned is None or owned.tenure is None:
            return Pass.UNOWNED
        if not self._book.is_of(peer, owned.tenure):
            return Pass.DENIED
        return Pass.ALLOWED if owned.tenure.is_confirmed else Pass.WAITS

    def _judge_token(self, token: Token, peer: Peer) -> Pass:
        """It has claimed before: where it owns nothing, it was refused or could not be told."""
        owned = self.entries.get(token.group)
        if owned is not None and owned.tenure is not None:
            return self._judge_owner(owned, peer)
        member = self._book.members.get(peer)
        if member is not None and self in member.shut_out:
            return Pass.DENIED
        record = None if owned is None else owned.retained(self._now_ms())
        if record is None or token.number > record.generation:
            return Pass.UNOWNED
        is_holder = (record.generation, record.principal, record.holder) == (
            token.number,
            peer.principal,
            peer.client_id,
        )
        return Pass.UNOWNED if is_holder else Pass.DENIED

    def fetch_fault(self, peer: Peer) -> "Gated | ErrorCode | None":
        """The same of an entry of a fetch session that came on this connection."""
        return _FAULTS[self.judge(FETCH, peer)]

    def unconfirmed(self, peer: Peer) -> Tenure | None:
        """What a connection waits for that is told to wait."""
        for entry in self.entries.values():
            tenure = entry.tenure
            if tenure is not None and not tenure.is_confirmed and self._book.is_of(peer, tenure):
                return tenure
        return None


PRODUCE_ERRORS = {
    Pass.UNOWNED: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Pass.WAITS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Pass.NOT_SERVED: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Pass.DENIED: ErrorCode.PRODUCER_FENCED,
}
FETCH_ERRORS = {**PRODUCE_ERRORS, Pass.DENIED: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
_FAULTS: dict[Pass, Gated | ErrorCode | None] = {
    Pass.ALLOWED: None,
    Pass.WAITS: Gated.WAITS,
    Pass.UNOWNED: Gated.UNOWNED,
    Pass.NOT_SERVED: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Pass.DENIED: Gated.DENIED,
}
