"""The partitions that one fetcher task replicates from one leader: what to ask for, and what each answer means.

A partition is absent, fetching, truncating, or waits out a delay. Trouble of its own never stops the others: one that
fails leaves the fetcher for the failed set, and comes back with the next leader epoch only.
"""

from collections.abc import Hashable, Iterator
from enum import Enum
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from headrace.core.fetching import Ask, FetchingSession
from headrace.errors import ErrorCode
from headrace.model import Buffer
from headrace.wire.messages.fetch import PartitionData

BACKOFF_MS = 1_000
FIRST_BACKOFF_MS = 20
"""A leader that has just been elected knows of it within milliseconds; whoever is refused again waits twice as long."""

NOT_YET = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""What a node says that has not heard of its leadership."""

K = TypeVar("K", bound=Hashable)


class Phase(Enum):
    FETCHING = "fetching"
    TRUNCATING = "truncating"


class Position(NamedTuple):
    """What is asked of the leader."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start: int


class Failed(NamedTuple):
    reason: str
    since_ms: int
    leader_epoch: int


class FailedPartitions(Generic[K]):
    """Of all fetchers of a node: what is not replicated before its next leader epoch."""

    def __init__(self) -> None:
        self._failed: dict[K, Failed] = {}

    def __len__(self) -> int:
        return len(self._failed)

    def __contains__(self, key: K) -> bool:
        return key in self._failed

    def items(self) -> Iterator[tuple[K, Failed]]:
        return iter(self._failed.items())

    def get(self, key: K) -> Failed | None:
        return self._failed.get(key)

    def add(self, key: K, reason: str, now_ms: int, leader_epoch: int) -> None:
        self._failed[key] = Failed(reason, now_ms, leader_epoch)

    def discard(self, key: K) -> None:
        """It is deleted or stopped, its directory is gone, or this node leads it now."""
        self._failed.pop(key, None)

    def bars(self, key: K, leader_epoch: int) -> bool:
        """Whether it failed in this very leader epoch, or in a later one."""
        failed = self._failed.get(key)
        return failed is not None and leader_epoch <= failed.leader_epoch


# What an answer's part means.


class Append(NamedTuple):
    """Perhaps without records. Then tell the partition, and `appended`."""

    records: Buffer
    high_watermark: int
    log_start: int


class Diverged(NamedTuple):
    """Cut by truncation.truncation_offset, before anything else of the answer counts; then tell `truncated`."""

    epoch: int
    end_offset: int


class OutOfRange(NamedTuple):
    """Ask the leader for its offsets, act by truncation.repair, then tell `truncated` or `repair_refused`."""


class MovedToTier(NamedTuple):
    """Find out where to begin (tier_start), take that over from the tier, then tell `truncated` or `repair_refused`."""


class Delayed(NamedTuple):
    error: ErrorCode | None


class Fail(NamedTuple):
    """It is in the failed set now. One line at level ERROR is due, unless its leader is only further than we know."""

    reason: str
    is_fenced: bool = False


class Ignored(NamedTuple):
    """It answers something that is no longer asked."""


Step: TypeAlias = Append | Diverged | OutOfRange | MovedToTier | Delayed | Fail | Ignored


class _Followed:
    __slots__ = ("asked", "lag", "phase", "position", "strikes")

    def __init__(self, position: Position, asked: Position | None) -> None:
        self.position = position
        self.asked = asked  # as the leader knows it
        self.phase = Phase.FETCHING
        self.lag = 0
        self.strikes = 0


class FetcherPartitions(Generic[K]):
    def __init__(self, failed: FailedPartitions[K], backoff_ms: int = BACKOFF_MS) -> None:
        self.session: FetchingSession[K, Position] = FetchingSession()
        self._failed = failed
        self._backoff_ms = backoff_ms
        self._followed: dict[K, _Followed] = {}
        self._due_ms: dict[K, int] = {}  # of the delayed ones
        self._due: list[tuple[int, int, K]] = []  # a heap of them, with a number before the key; some are outdated
        self._delays = 0
        self._strikes = 0  # requests in a row that failed

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, key: K) -> bool:
        return key in self._followed

    def __iter__(self) -> Iterator[K]:
        return iter(self._followed)

    def phase(self, key: K) -> Phase | None:
        followed = self._followed.get(key)
        return None if followed is None else followed.phase

    def is_delayed(self, key: K) -> bool:
        return key in self._due_ms

    def position(self, key: K) -> Position:
        return self._followed[key].position

    def lag(self, key: K) -> int | None:
        followed = self._followed.get(key)
        return None if followed is None else followed.lag

    # Which partitions.

    def add(self, key: K, position: Position) -> bool:
        """Follow it from now on. False when nothing changes: the epoch is no news, or it failed in this one."""
        if self._failed.bars(key, position.leader_epoch):
            return False
        known = self._followed.get(key)
        if known is not None and position.leader_epoch <= known.position.leader_epoch:
            return False
        self._failed.discard(key)
        self._due_ms.pop(key, None)
        self._followed[key] = _Followed(position, None if known is None else known.asked)
        self.session.want(key, position)
        return True

    def list_again(self, key: K) -> None:
        """It is asked for as before, and the next request says so."""
        followed = self._followed.get(key)
        if followed is not None and followed.phase is Phase.FETCHING and key not in self._due_ms:
            self.session.want(key, followed.position)

    def remove(self, key: K) -> None:
        """This node leads it, or holds it no longer, or its directory is gone."""
        self._failed.discard(key)
        self._leave(key)

    def _leave(self, key: K) -> None:
        if self._followed.pop(key, None) is not None:
            self._due_ms.pop(key, None)
            self.session.drop(key)

    # Asking.

    def next(self, now_ms: int) -> Ask[K, Position]:
        """The next request. Whoever has waited long enough is in it again."""
        while (due_ms := self.wake_ms) is not None and due_ms <= now_ms:
            _, _, key = heappop(self._due)
            del self._due_ms[key]
            followed = self._followed[key]
            followed.phase = Phase.FETCHING
            self.session.want(key, followed.position)
        ask = self.session.next()
        for key, position in ask.listed:
            self._followed[key].asked = position
        return ask

    @property
    def has_something_to_ask(self) -> bool:
        return len(self.session) > 0

    @property
    def wake_ms(self) -> int | None:
        """When the first delay ends."""
        while self._due:
            due_ms, _, key = self._due[0]
            if self._due_ms.get(key) == due_ms:
                return due_ms
            heappop(self._due)
        return None

    # What came of it.

    def judge(self, key: K, part: PartitionData, now_ms: int) -> Step:
        followed = self._followed.get(key)
        if followed is None or followed.phase is not Phase.FETCHING or key in self._due_ms:
            return Ignored()
        asked, position = followed.asked, followed.position
        if asked is None:
            return Ignored()
        if asked.leader_epoch != position.leader_epoch:
            if part.error_code == ErrorCode.FENCED_LEADER_EPOCH:
                return self.delay(key, now_ms, ErrorCode.FENCED_LEADER_EPOCH)
            return Ignored()
        if asked.fetch_offset != position.fetch_offset:
            return Ignored()
        if part.error_code:
            if part.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                followed.lag = max(part.high_watermark - position.fetch_offset, 0)
            return self._judge_error(key, followed, part.error_code, now_ms)
        diverging = part.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            followed.phase = Phase.TRUNCATING
            return Diverged(diverging.epoch, diverging.end_offset)
        followed.strikes = 0
        followed.lag = max(part.high_watermark - position.fetch_offset, 0)
        return Append(part.records or b"", part.high_watermark, part.log_start_offset)

    def _judge_error(self, key: K, followed: _Followed, code: int, now_ms: int) -> Step:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.phase = Phase.TRUNCATING
            self.session.drop(key)  # else every answer repeats the error, and none waits
            return OutOfRange()
        if code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            followed.phase = Phase.TRUNCATING
            self.session.drop(key)
            return MovedToTier()
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            return self._fenced(key, followed.position.leader_epoch, now_ms)
        try:
            error = ErrorCode(code)
        except ValueError:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        return self.delay(key, now_ms, error)

    def appended(self, key: K, end_offset: int, last_fetched_epoch: int, log_start: int) -> None:
        """The log after an append, or after the leader's log start was taken over."""
        followed = self._followed.get(key)
        if followed is None:
            return
        appended = end_offset - followed.position.fetch_offset
        followed.lag = max(followed.lag - appended, 0)
        self._go_on(key, followed, end_offset, last_fetched_epoch, log_start)

    def truncated(self, key: K, end_offset: int, last_fetched_epoch: int, log_start: int) -> None:
        """The log was cut, or was repaired: fetching goes on from its end, whatever that is."""
        followed = self._followed.get(key)
        if followed is None or followed.phase is not Phase.TRUNCATING:
            return
        followed.phase = Phase.FETCHING
        followed.lag = max(followed.position.fetch_offset + followed.lag - end_offset, 0)
        followed.position = Position(followed.position.leader_epoch, end_offset, last_fetched_epoch, log_start)
        self.session.want(key, followed.position)

    def repair_refused(self, key: K, error: ErrorCode, leader_epoch: int, now_ms: int) -> Step:
        """The leader did not tell its offsets. `leader_epoch` is the one that it was asked with."""
        followed = self._followed.get(key)
        if followed is None or followed.phase is not Phase.TRUNCATING:
            return Ignored()
        if error == ErrorCode.FENCED_LEADER_EPOCH and leader_epoch == followed.position.leader_epoch:
            return self._fenced(key, leader_epoch, now_ms)
        return self.delay(key, now_ms, error)

    def delay(self, key: K, now_ms: int, error: ErrorCode | None = None) -> Step:
        """Retriable trouble, records that cannot be read for example."""
        followed = self._followed.get(key)
        if followed is None:
            return Ignored()
        delay_ms = self._backoff_ms
        if error in NOT_YET:
            delay_ms = self._growing(followed.strikes)
            followed.strikes += 1
        self.session.drop(key)
        self._delay(key, now_ms + delay_ms)
        return Delayed(error)

    def _delay(self, key: K, due_ms: int) -> None:
        self._due_ms[key] = due_ms
        self._delays += 1
        heappush(self._due, (due_ms, self._delays, key))

    def fail(self, key: K, reason: str, now_ms: int) -> Step:
        """Its own disk, or anything unexpected while it was appended to or cut."""
        followed = self._followed.get(key)
        if followed is None:
            return Ignored()
        self._failed.add(key, reason, now_ms, followed.position.leader_epoch)
        self._leave(key)
        return Fail(reason)

    def _fenced(self, key: K, leader_epoch: int, now_ms: int) -> Step:
        """Ordinary after an election: the leader has heard of it, and this node has not."""
        self.fail(key, f"leader epoch {leader_epoch} is fenced", now_ms)
        return Fail(f"leader epoch {leader_epoch} is fenced", is_fenced=True)

    def request_failed(self, now_ms: int) -> None:
        """The whole request did: nothing is known of any of them. Nodes that start together find each other soon."""
        due_ms = now_ms + self._growing(self._strikes)
        self._strikes += 1
        for key in self._followed:
            self.session.drop(key)
            self._delay(key, due_ms)

    def request_answered(self) -> None:
        self._strikes = 0

    def _growing(self, strikes: int) -> int:
        return min(FIRST_BACKOFF_MS << min(strikes, 16), self._backoff_ms)

    def _go_on(self, key: K, followed: _Followed, end_offset: int, last_fetched_epoch: int, log_start: int) -> None:
        position = Position(followed.position.leader_epoch, end_offset, last_fetched_epoch, log_start)
        if position == followed.position:
            return
        followed.position = position
        if followed.phase is Phase.FETCHING and key not in self._due_ms:
            self.session.want(key, position)
