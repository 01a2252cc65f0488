"""All fetch sessions of a node: what a request means, what an event touches, and which parked fetches it completes.

Everything that waits or watches is here, nothing is read or sent. The caller answers the fetches that it is handed:
`build`, give the bytes to the connection, `handed_over`. It does so in one step, since the answer tells the state of
that step.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from headrace.core import fetch_liveness
from headrace.core.fetch_answer import Answer, Fetch, FindAborted, Read, build_parts, none_aborted
from headrace.core.fetch_cache import SessionCache
from headrace.core.fetch_entries import Entry, Replica, Subscriptions, TopicKey, View, watching
from headrace.core.fetch_session import AtHand, Fetcher, FetchSession, Throttled, all_at_hand, next_epoch
from headrace.core.ownership import NOBODY, Peer
from headrace.errors import ErrorCode
from headrace.wire.messages.fetch import FetchRequest

TOPIC_IDS_SINCE = 13
READ_COMMITTED = 1
FULL_EPOCHS = (0, -1)
CLOSING_EPOCH = -1

Find = Callable[[Any, int], Replica | ErrorCode]
"""(topic name or id, index) -> the replica, or why there is none here."""


class Refusal(NamedTuple):
    """The whole request gets this code, session id 0 and no partitions."""

    error: ErrorCode


class Received(NamedTuple):
    """`woken` are parked fetches that this request ends; they are answered before it.

    `followed` are replicas whose follower told how far it is: the high watermark may move, and the ISR grow.
    """

    verdict: Fetch | Refusal
    woken: list[Fetch]
    followed: Sequence[Replica] = ()


def never_throttled(entry: Entry) -> bool:  # noqa: ARG001  # replication quotas come with replication
    return False


class FetchSessions:
    """`draw_id` gives unpredictable numbers of 31 bits. Counters are plain numbers for the metrics to read."""

    def __init__(
        self,
        *,
        slots_max: int,
        partitions_max: int,
        fetch_bytes_max: int,
        draw_id: Callable[[], int],
        find_by_name: Find,
        find_by_id: Find,
        allowed: Callable[[str, str], bool],
        throttled: Throttled = never_throttled,
    ) -> None:
        self.cache = SessionCache(slots_max, partitions_max)
        self.fetch_bytes_max = fetch_bytes_max
        self.acl_version = 0  # the caller raises it when a rule changes
        self.errors: dict[ErrorCode, int] = {}
        self.requests = 0
        self.partitions_visited = 0
        self.partitions_returned = 0
        self._draw_id = draw_id
        self._find_by_name = find_by_name
        self._find_by_id = find_by_id
        self._allowed = allowed
        self._throttled = throttled
        self.at_hand: AtHand = all_at_hand
        """A node with a tier sets this."""
        self._subscriptions = Subscriptions()
        self._parked: dict[Fetch, None] = {}

    # Requests.

    def receive(
        self, request: FetchRequest, version: int, fetcher: Fetcher, now_ms: int, visitor: Peer = NOBODY
    ) -> Received:
        """Says what a request asks for, and applies what it lists. The fetch is then to be answered or parked."""
        self.requests += 1
        by_id = version >= TOPIC_IDS_SINCE
        if request.session_epoch in FULL_EPOCHS:
            return self._receive_full(request, by_id, fetcher, now_ms, visitor)
        session = self.cache.get(request.session_id)
        if session is None or not session.belongs_to(fetcher):
            return self._refuse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            return self._refuse(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != by_id:
            return self._refuse(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        overtaken = self._unpark(session)
        session.epoch = next_epoch(session.epoch)
        self.cache.touch(session, now_ms)
        if session.visitor is not visitor:
            self._visit(session, visitor)
        followed: list[Replica] = []
        fits = self._apply(session, request, fetcher, now_ms, followed)
        # Not before: what an entry was in step with until now, it was at the fetch before.
        session.last_fetch_ms = now_ms
        session.receipts += 1
        if not fits:
            # What it wants to add does not fit the memory for sessions. A full fetch is served in any case.
            self._close(session)
            return Received(self._refuse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND).verdict, overtaken)
        fetch = self._fetch(session, request, full=False, opens_session=False)
        if session.size == 0:
            self._close(session)
            fetch.session_id = 0
        return Received(fetch, overtaken, followed)

    @staticmethod
    def _visit(session: FetchSession, visitor: Peer) -> None:
        """It came on another connection, for which owned partitions are judged anew."""
        session.visitor = visitor
        for entry in session:
            if entry.replica is not None and entry.replica.own is not None:
                session.settle(entry)

    def _receive_full(
        self, request: FetchRequest, by_id: bool, fetcher: Fetcher, now_ms: int, visitor: Peer
    ) -> Received:
        woken: list[Fetch] = []
        replaced = self.cache.get(request.session_id)
        if replaced is not None and replaced.belongs_to(fetcher):
            woken = self._close(replaced)
        session = FetchSession(
            fetcher, by_id, view_of(request, fetcher), request.rack_id, self.acl_version, self._throttled, self.at_hand
        )
        session.visitor = visitor
        session.last_fetch_ms = now_ms
        followed: list[Replica] = []
        self._list(session, request, now_ms, followed)
        session.receipts += 1
        opens_session = request.session_epoch != CLOSING_EPOCH
        return Received(self._fetch(session, request, full=True, opens_session=opens_session), woken, followed)

    def _fetch(self, session: FetchSession, request: FetchRequest, *, full: bool, opens_session: bool) -> Fetch:
        return Fetch(
            session,
            full=full,
            opens_session=opens_session,
            bytes_max=max(min(request.max_bytes, self.fetch_bytes_max), 0),
            bytes_min=request.min_bytes,
            wait_ms_max=request.max_wait_ms,
        )

    def _refuse(self, error: ErrorCode) -> Received:
        self.errors[error] = self.errors.get(error, 0) + 1
        return Received(Refusal(error), [])

    def _apply(
        self,
        session: FetchSession,
        request: FetchRequest,
        fetcher: Fetcher,
        now_ms: int,
        followed: list[Replica],
    ) -> bool:
        """Lists, then forgets: a partition in both ends up removed. False when the sessions have become too big."""
        size_before = session.size
        view = view_of(request, fetcher)
        if view is not session.view or request.rack_id != session.rack or self.acl_version != session.acl_version:
            session.view, session.rack, session.acl_version = view, request.rack_id, self.acl_version
            self.partitions_visited += session.size
            for entry in session:
                self._look_up_again(entry)
        if request.topics:
            self._list(session, request, now_ms, followed)
        if session.lost:
            self._speak_again(session, now_ms, followed)
        for topic in request.forgotten_topics_data:
            key = topic.topic_id if session.uses_topic_ids else topic.topic
            self.partitions_visited += len(topic.partitions)
            for index in topic.partitions:
                forgotten = session.find(key, index)
                if forgotten is not None:
                    self._forget(session, forgotten)
        return session.size == size_before or self.cache.grew(session.size - size_before)

    def _speak_again(self, session: FetchSession, now_ms: int, followed: list[Replica]) -> None:
        """Another session spoke for these followers since. This one is in use, so that it does again."""
        for entry in list(session.lost):
            replica = fetch_liveness.listed(entry, now_ms)
            if replica is not None:
                followed.append(replica)

    def _list(self, session: FetchSession, request: FetchRequest, now_ms: int, followed: list[Replica]) -> None:
        privileged = session.privileged
        by_id = session.uses_topic_ids
        find = self._find_by_id if by_id else self._find_by_name
        for topic in request.topics:
            if not topic.partitions:
                continue
            self.partitions_visited += len(topic.partitions)
            key: TopicKey = topic.topic_id if by_id else topic.topic
            entries = session.topics.setdefault(key, {})
            denied: bool | None = None  # asked once per topic
            for asked in topic.partitions:
                entry = entries.get(asked.partition)
                if entry is not None:
                    if privileged:
                        fetch_liveness.about_to_ask(entry)
                    entry.ask(asked)
                    session.settle(entry)
                    if privileged and (replica := fetch_liveness.listed(entry, now_ms)) is not None:
                        followed.append(replica)
                    continue
                entry = entries[asked.partition] = Entry(session, key, asked)
                session.size += 1
                found = find(key, asked.partition)
                if denied is None:
                    denied = self._denied(session, key, found)
                if denied or isinstance(found, ErrorCode):
                    self._judge(entry, found, denied)
                else:
                    entry.replica = found
                    session.settle(entry)
                if privileged and (replica := fetch_liveness.listed(entry, now_ms)) is not None:
                    followed.append(replica)
                if session.subscribed:
                    self._subscriptions.add(entry)

    def _denied(self, session: FetchSession, key: TopicKey, found: Replica | ErrorCode) -> bool | None:
        """A name is asked about before it is said to be unknown; an id that is unknown here has no name."""
        if isinstance(key, str):
            return not self._allowed(session.fetcher.principal, key)
        return None if isinstance(found, ErrorCode) else not self._allowed(session.fetcher.principal, found.topic)

    def _judge(self, entry: Entry, found: Replica | ErrorCode, denied: bool | None) -> None:
        """What was found of the partition, then whether it may be read, then whether it can be."""
        session = entry.session
        entry.replica = None if isinstance(found, ErrorCode) else found
        if isinstance(found, ErrorCode):
            hidden = denied and isinstance(entry.topic, str)
            session.blame(entry, ErrorCode.TOPIC_AUTHORIZATION_FAILED if hidden else found)
        elif denied:
            session.blame(entry, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            if entry.fault is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                session.absolve(entry)
            session.settle(entry)

    def _look_up_again(self, entry: Entry) -> None:
        session = entry.session
        find = self._find_by_id if session.uses_topic_ids else self._find_by_name
        found = find(entry.topic, entry.index)
        replica = None if isinstance(found, ErrorCode) else found
        moves = session.subscribed and replica is not entry.replica
        if session.privileged and replica is not entry.replica:
            fetch_liveness.released(entry)
            session.lost[entry] = None  # the next request speaks for the follower at the new place
        if moves:
            self._subscriptions.remove(entry)
        self._judge(entry, found, self._denied(session, entry.topic, found))
        if moves:
            self._subscriptions.add(entry)

    def _forget(self, session: FetchSession, entry: Entry) -> None:
        if session.privileged:
            fetch_liveness.released(entry)
        if session.subscribed:
            self._subscriptions.remove(entry)
        session.remove(entry)
        entry.replica = None

    # Waiting.

    def park(self, fetch: Fetch) -> bool:
        """False when there is enough to answer it now. A parked fetch ends by an event, `expire` or `abandon`."""
        if not fetch.session.park(fetch):
            return False
        self._parked[fetch] = None
        self._subscribe(fetch.session)
        return True

    def abandon(self, fetch: Fetch) -> None:
        """Its connection is gone. The session, if the fetcher ever heard of it, lives on."""
        session = fetch.session
        if session.waiter is fetch:
            self._unpark(session)
        if fetch.full and session.id == 0:
            self._unsubscribe(session)

    @property
    def parked(self) -> list[Fetch]:
        return list(self._parked)

    @property
    def anybody_waits_for_partitions(self) -> bool:
        """Whether any entry names a partition that is not hosted here."""
        return self._subscriptions.any_absent

    def _unpark(self, session: FetchSession) -> list[Fetch]:
        waiter = session.waiter
        if waiter is None:
            return []
        session.waiter = None
        del self._parked[waiter]
        return [waiter]

    def _subscribe(self, session: FetchSession) -> None:
        if not session.subscribed:
            session.subscribed = True
            for entry in session:
                self._subscriptions.add(entry)

    def _unsubscribe(self, session: FetchSession) -> None:
        if session.privileged:
            for entry in session:
                fetch_liveness.released(entry)
        if session.subscribed:
            session.subscribed = False
            for entry in session:
                self._subscriptions.remove(entry)

    def _close(self, session: FetchSession) -> list[Fetch]:
        """Frees the slot. Its parked fetch is answered with what is there."""
        self.cache.remove(session)
        self._unsubscribe(session)
        return self._unpark(session)

    # Answers.

    def build(
        self, fetch: Fetch, read: Read, now_ms: int, throttle_ms: int = 0, find_aborted: FindAborted = none_aborted
    ) -> Answer:
        session = fetch.session
        if session.waiter is fetch:
            self._unpark(session)
        if fetch.overtaken:
            error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            self.errors[error] = self.errors.get(error, 0) + 1
            return Answer(fetch, fetch.session_id, error)
        answer = Answer(fetch, fetch.session_id)
        answer.throttle_ms = throttle_ms
        if throttle_ms <= 0:
            answer.parts, visited = build_parts(fetch, read, find_aborted)
            self.partitions_visited += visited
            self.partitions_returned += len(answer.parts)
        if fetch.full:
            if fetch.opens_session and answer.parts:
                self._open(answer, now_ms)
            if session.id == 0:
                self._unsubscribe(session)
        return answer

    def _open(self, answer: Answer, now_ms: int) -> None:
        session = answer.fetch.session
        displaced = self.cache.room_for(session, now_ms)
        if displaced is None:
            return
        for victim in displaced:
            self.cache.evictions += 1
            answer.woken += self._close(victim)
        session_id = self._draw_id()
        while session_id <= 0 or session_id in self.cache:
            session_id = self._draw_id()
        session.epoch = next_epoch(0)
        self.cache.add(session, session_id, now_ms)
        answer.session_id = session_id
        self._subscribe(session)

    # Events. Each returns the parked fetches that it completes; what is true of the replica must be true already.

    def advanced(self, replica: Replica) -> list[Fetch]:
        """Its log end, high watermark or last stable offset rose."""
        woken = []
        entry = replica.subscribers
        while entry is not None:
            session = entry.session
            session.advance(entry, replica)
            waiter = session.wake()
            if waiter is not None:
                woken.append(waiter)
            entry = entry.following
        return woken

    def changed(self, replica: Replica) -> list[Fetch]:
        """Anything else: its log start, leader epoch, leadership, disk, a truncation, a quota."""
        for entry in watching(replica):
            entry.session.settle(entry)
        return _wake(watching(replica))

    def removed(self, replica: Replica) -> list[Fetch]:
        """This node hosts it no longer, and does not find it any more."""
        entries = list(watching(replica))
        for entry in entries:
            self._look_up_again(entry)
        return _wake(entries)

    def placed(self, topic: str, topic_id: bytes, index: int) -> list[Fetch]:
        """This node hosts the partition from now on, or knows where it is, or that it exists at all."""
        entries = self._subscriptions.absent(topic, topic_id, index)
        for entry in entries:
            self._look_up_again(entry)
        return _wake(entries)

    def quota_moved(self) -> list[Fetch]:
        """A replication quota has begun or ceased to stop followers."""
        sessions = [session for session in self.cache.values() if session.privileged]
        sessions += [fetch.session for fetch in self._parked if fetch.session.privileged and fetch.full]
        entries = [entry for session in sessions for entry in (*session.ready, *session.held)]
        for entry in entries:
            entry.session.settle(entry)
        return _wake(entries)

    def replica_gone(self, replica_id: int, broker_epoch: int) -> list[Fetch]:
        """That node was fenced, or registered anew: nothing sent under this registration counts any more."""
        woken = []
        for session in self.cache.values():
            if session.fetcher.replica_id == replica_id and session.fetcher.broker_epoch == broker_epoch:
                woken += self._close(session)
        for fetch in list(self._parked):
            session = fetch.session
            if session.fetcher.replica_id == replica_id and session.fetcher.broker_epoch == broker_epoch:
                fetch.opens_session = False
                self._unsubscribe(session)
                woken += self._unpark(session)
        return woken


def _wake(entries: Iterable[Entry]) -> list[Fetch]:
    return [waiter for entry in entries if (waiter := entry.session.wake()) is not None]


def view_of(request: FetchRequest, fetcher: Fetcher) -> View:
    if fetcher.privileged or fetcher.debugs:
        return View.LOG_END
    return View.STABLE if request.isolation_level == READ_COMMITTED else View.HIGH_WATERMARK
