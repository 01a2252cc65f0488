"""The asking side of an incremental fetch session: what the next request says, and what an answer means for it.

Costs what changed: partitions that are wanted as before are neither looked at nor listed.
"""

from collections.abc import Collection, Hashable
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from headrace.errors import ErrorCode

EPOCH_MAX = 0x7FFFFFFF
EPOCH_FINAL = -1
"""Of a request that closes the session, or asks for none."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Verdict(Enum):
    """What to do after an answer."""

    USE = "apply its partitions"
    AGAIN = "nothing in it counts; ask again at once"
    BACK_OFF = "nothing in it counts, and neither did the one before; wait, then ask again"
    FAILED = "its error stands for every partition"


class Ask(NamedTuple, Generic[K, V]):
    """One request: a full one lists everything that is wanted."""

    session_id: int
    epoch: int
    listed: list[tuple[K, V]]
    forgotten: list[K]


class FetchingSession(Generic[K, V]):
    """One request may be in flight; its answer is applied before the next one is made.

    Keys name partitions, by topic id or by topic name but never both in one session; values are what is asked
    of them, compared with nothing and handed out again as they came.
    """

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self._wanted: dict[K, V] = {}
        self._changed: dict[K, None] = {}
        self._told: dict[K, None] = {}  # what the broker has in this session
        self._dropped: dict[K, None] = {}
        self._asked_full: Collection[K] | None = None
        self._strikes = 0

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: K, value: V) -> None:
        """A new partition, or one that is to be asked differently, from another offset for example."""
        self._wanted[key] = value
        self._changed[key] = None
        self._dropped.pop(key, None)

    def drop(self, key: K) -> None:
        self._wanted.pop(key, None)
        self._changed.pop(key, None)
        if key in self._told:
            self._dropped[key] = None

    def next(self) -> Ask[K, V]:
        if self.epoch == 0:
            listed = list(self._wanted.items())
            self._asked_full = frozenset(self._wanted)
            self._told = dict.fromkeys(self._wanted)
            forgotten = []
        else:
            listed = [(key, self._wanted[key]) for key in self._changed]
            self._asked_full = None
            forgotten = list(self._dropped)
            self._told.update(self._changed)
            for key in forgotten:
                del self._told[key]
        self._changed.clear()
        self._dropped.clear()
        return Ask(self.session_id, self.epoch, listed, forgotten)

    def answered(self, error_code: int, session_id: int, keys: Collection[K], throttled: bool = False) -> Verdict:
        """`keys` are the partitions of the answer."""
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            return self._start_over(0)
        if error_code in (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
            return self._start_over(self.session_id)
        if error_code:
            self._start_over(self.session_id)
            self._strikes = 0
            return Verdict.FAILED
        if not self._is_complete(session_id, keys, throttled):
            return self._start_over(self.session_id or session_id)
        self._strikes = 0
        if session_id == 0:
            self._start_over(0)
            self._strikes = 0
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        return Verdict.USE

    def lost(self) -> Verdict:
        """No answer came, or none that can be read."""
        return self._start_over(self.session_id)

    def closing(self) -> Ask[K, V] | None:
        """The last request, which frees the broker's memory; None when there is no session."""
        return Ask(self.session_id, EPOCH_FINAL, [], []) if self.session_id else None

    def _is_complete(self, session_id: int, keys: Collection[K], throttled: bool) -> bool:
        if self._asked_full is None:
            return session_id in (0, self.session_id) and all(key in self._told for key in keys)
        if not keys and throttled and session_id == 0:
            return True
        return len(keys) == len(self._asked_full) and all(key in self._asked_full for key in keys)

    def _start_over(self, session_id: int) -> Verdict:
        """The next request is a full one, in place of that session."""
        self.session_id = session_id
        self.epoch = 0
        self._strikes += 1
        return Verdict.AGAIN if self._strikes == 1 else Verdict.BACK_OFF
