"""The checker of the fetch sessions: whatever happens, they answer as if they had looked at everything.

After every step each session's answer is compared with that of its naive twin, so are the bytes that a parked fetch
waits for, the moment at which it wakes, the turns that entries take under a small budget, who watches what, and until
when a follower counts as in sync.
"""

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from headrace.core.fetch_answer import Fetch, build_parts
from headrace.core.fetch_entries import watching
from headrace.core.fetch_session import Fetcher, FetchSession, next_epoch
from headrace.core.fetch_sessions import Refusal
from headrace.errors import ErrorCode
from headrace.wire.messages.fetch import FetchRequest
from tests.core.fetch_clients import (
    MACHINE_SETTINGS,
    NAMES,
    UNKNOWN_ID,
    UNLIMITED,
    Client,
    Wish,
    WorldThatWaits,
    bytes_max,
    bytes_min,
    check_in_sync,
    offsets,
    replicas,
    sizes,
    waits,
    wishes,
)
from tests.core.fetch_world import ALICE, BOB, BY_ID, BY_NAME, FOLLOWER, Ask, FakeReplica, read, request
from tests.core.naive_fetch import NaiveSession, keys_of, sorted_like


class FetchSessionsAndTheirTwins(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.world = WorldThatWaits()
        self.sessions = self.world.sessions
        self.everybody: list[Client] = []
        self.ids: dict[str, bytes] = {}
        self.incarnations = 0

    # The broker.

    @initialize(target=clients, data=st.data())
    def begin(self, data: st.DataObject) -> MultipleResults[Client]:
        """Most of the partitions exist and hold something, and a session is open on each kind of fetcher."""
        for at in data.draw(st.lists(replicas, min_size=3, unique=True)):
            self.host(at)
            self.append(at, 2, 100, True, True)
        clients = [
            self.start(fetcher, data.draw(st.booleans()), data.draw(wishes), 0, 0, 1, UNLIMITED, 0, None)
            for fetcher in (ALICE, BOB, FOLLOWER)
        ]
        return multiple(*clients)

    @rule(at=replicas)
    def host(self, at: tuple[str, int]) -> None:
        name, index = at
        if at in self.world.by_name:
            return
        if not any(hosted == name for hosted, _ in self.world.by_name):
            self.incarnations += 1
            self.ids[name] = f"{name}{self.incarnations}".encode().ljust(16)
        self.world.host(name, self.ids[name], index)

    @rule(at=replicas)
    def drop(self, at: tuple[str, int]) -> None:
        replica = self.world.by_name.get(at)
        if replica is not None:
            self.world.drop(replica)

    @rule(at=replicas, records=st.integers(1, 3), size=sizes, committed=st.booleans(), stable=st.booleans())
    def append(self, at: tuple[str, int], records: int, size: int, committed: bool, stable: bool) -> None:
        replica = self.world.by_name.get(at)
        if replica is None:
            return
        replica.append(records, size)
        if committed:
            replica.high_watermark = replica.log_end_offset
        if stable:
            replica.last_stable_offset = replica.high_watermark
        self.world.answer(self.sessions.advanced(replica))

    @rule(at=replicas, stable=st.booleans())
    def commit(self, at: tuple[str, int], stable: bool) -> None:
        replica = self.world.by_name.get(at)
        if replica is None:
            return
        replica.high_watermark = replica.log_end_offset
        if stable:
            replica.last_stable_offset = replica.high_watermark
        self.world.answer(self.sessions.advanced(replica))

    @rule(at=replicas, offset=offsets)
    def move_log_start(self, at: tuple[str, int], offset: int) -> None:
        replica = self.world.by_name.get(at)
        if replica is not None and replica.log_start_offset < offset <= replica.high_watermark:
            replica.log_start_offset = offset
            self.changed(replica)

    @rule(at=replicas, offset=offsets)
    def move_local_log_start(self, at: tuple[str, int], offset: int) -> None:
        """What lies below is in the tier alone: followers are sent there, consumers read on."""
        replica = self.world.by_name.get(at)
        if replica is not None and replica.local_log_start_offset < offset <= replica.high_watermark:
            replica.local_log_start_offset = offset
            self.changed(replica)

    @rule(at=replicas, is_at_hand=st.booleans())
    def load(self, at: tuple[str, int], is_at_hand: bool) -> None:
        """What is in the tier alone has come from there, or has gone for something else."""
        replica = self.world.by_name.get(at)
        if replica is not None:
            replica.is_at_hand = is_at_hand
            self.world.answer(self.sessions.advanced(replica))

    @rule(at=replicas, offset=offsets)
    def truncate(self, at: tuple[str, int], offset: int) -> None:
        replica = self.world.by_name.get(at)
        if replica is not None:
            replica.truncate(offset)
            self.changed(replica)

    @rule(at=replicas)
    def raise_leader_epoch(self, at: tuple[str, int]) -> None:
        replica = self.world.by_name.get(at)
        if replica is not None:
            replica.lead(replica.leader_epoch + 1)
            self.changed(replica)

    @rule(at=replicas, error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]))
    def fail(self, at: tuple[str, int], error: ErrorCode) -> None:
        replica = self.world.by_name.get(at)
        if replica is not None:
            replica.error = error
            self.changed(replica)

    @rule(at=replicas, error=st.sampled_from([ErrorCode.NONE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]))
    def fail_reads(self, at: tuple[str, int], error: ErrorCode) -> None:
        """Seen by whoever reads, and by nobody else."""
        replica = self.world.by_name.get(at)
        if replica is not None:
            replica.read_error = error

    @rule(at=replicas)
    def roll(self, at: tuple[str, int]) -> None:
        """No event: the next append tells of it."""
        replica = self.world.by_name.get(at)
        if replica is not None and not any(client.parked for client in self.everybody):
            replica.segment_start = replica.log_end_offset

    @rule(principal=st.sampled_from([ALICE.principal, BOB.principal]), topic=st.sampled_from(NAMES))
    def change_permission(self, principal: str, topic: str) -> None:
        self.world.denied ^= {(principal, topic)}
        self.sessions.acl_version += 1

    @rule()
    def change_quota(self) -> None:
        self.world.held_back = not self.world.held_back
        self.world.answer(self.sessions.quota_moved())

    @rule(ms=st.sampled_from([1, 70_000, 130_000]))
    def pass_time(self, ms: int) -> None:
        self.world.now_ms += ms

    def changed(self, replica: FakeReplica) -> None:
        self.world.answer(self.sessions.changed(replica))

    # The clients.

    @rule(
        target=clients,
        fetcher=st.sampled_from([ALICE, BOB, FOLLOWER]),
        by_id=st.booleans(),
        asked=wishes,
        isolation=st.sampled_from([0, 1]),
        wait_ms=waits,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        epoch=st.sampled_from([0, 0, 0, -1]),
        replaces=st.none() | consumes(clients),
    )
    def open(
        self,
        fetcher: Fetcher,
        by_id: bool,
        asked: list[Wish],
        isolation: int,
        wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        epoch: int,
        replaces: Client | None,
    ) -> Client:
        return self.start(fetcher, by_id, asked, isolation, wait_ms, min_bytes, max_bytes, epoch, replaces)

    def start(
        self,
        fetcher: Fetcher,
        by_id: bool,
        asked: list[Wish],
        isolation: int,
        wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        epoch: int,
        replaces: Client | None,
    ) -> Client:
        version = BY_ID if by_id else BY_NAME
        twin = NaiveSession(self.world, fetcher, by_id, isolation)
        client = Client(fetcher, version, twin, self.sessions.acl_version)
        self.everybody.append(client)
        old_id = replaces.session_id if replaces is not None else 0
        body = request(
            old_id,
            epoch,
            self.keyed(asked, by_id),
            wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation=isolation,
        )
        self.send(client, body)
        return client

    @rule(
        client=clients,
        asked=wishes | st.just([]),
        forget=st.lists(replicas, max_size=3) | st.just([]),
        isolation=st.sampled_from([None, None, None, 0, 1]),
        wait_ms=waits,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
    )
    def go_on(
        self,
        client: Client,
        asked: list[Wish],
        forget: list[tuple[str, int]],
        isolation: int | None,
        wait_ms: int,
        min_bytes: int,
        max_bytes: int,
    ) -> None:
        by_id = client.version == BY_ID
        body = request(
            client.session_id,
            client.epoch,
            self.keyed(asked, by_id),
            [(self.ids.get(name, UNKNOWN_ID) if by_id else name, index) for name, index in forget],
            wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation=client.twin.isolation if isolation is None else isolation,
        )
        if client.session_id in self.sessions.cache:
            self.send(client, body)
        elif client.session_id:
            verdict = self.sessions.receive(body, client.version, client.fetcher, self.world.now_ms).verdict
            assert verdict == Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    @rule(client=clients, wait_ms=waits, min_bytes=bytes_min, max_bytes=bytes_max)
    def poll(self, client: Client, wait_ms: int, min_bytes: int, max_bytes: int) -> None:
        """As consumers do: whatever it was sent, it asks beyond it now."""
        self.go_on(client, client.advanced, [], None, wait_ms, min_bytes, max_bytes)
        client.advanced = []

    @rule(client=clients, min_bytes=bytes_min, max_bytes=bytes_max)
    def idle(self, client: Client, min_bytes: int, max_bytes: int) -> None:
        self.go_on(client, [], [], None, 500, min_bytes, max_bytes)

    @rule(
        client=clients,
        steps=st.lists(st.tuples(st.none() | replicas, st.booleans()), min_size=2, max_size=8),
        max_bytes=st.sampled_from([0, 100, 450]),
    )
    def hunger(self, client: Client, steps: list[tuple[tuple[str, int] | None, bool]], max_bytes: int) -> None:
        """Many answers under a small budget, while the log grows and the client lists what it knows already."""
        for grows, listed in steps:
            if grows is not None:
                self.append(grows, 1, 100, True, True)
            self.deliver()
            again = [Wish(grows, "start", 1 << 20, -1, -1)] if grows is not None and listed else []
            self.go_on(client, again, [], None, 0, 1, max_bytes)
            self.turns_end_with_readiness()

    @rule(client=clients, epoch=st.sampled_from([-2, 1, 2, 3]))
    def replay(self, client: Client, epoch: int) -> None:
        if client.session_id in self.sessions.cache and epoch != client.epoch:
            body = request(client.session_id, epoch, [Ask("a", 0), Ask("b", 1)])
            verdict = self.sessions.receive(body, client.version, client.fetcher, self.world.now_ms).verdict
            assert verdict == Refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH)

    @rule(client=clients)
    def lose_patience(self, client: Client) -> None:
        """The timer of a parked fetch."""
        if client.parked is not None:
            self.finish(client, client.parked)

    @rule(client=clients)
    def hang_up(self, client: Client) -> None:
        if client.parked is not None:
            self.world.woken.pop(client.parked, None)
            self.sessions.abandon(client.parked)
            client.parked = client.asked = None

    @precondition(lambda self: self.world.woken)
    @rule()
    def end_turn(self) -> None:
        self.deliver()

    # How a request goes.

    def keyed(self, wished: list[Wish], by_id: bool) -> list[Ask]:
        asked = []
        for wish in wished:
            name, index = wish.at
            key = self.ids.get(name, UNKNOWN_ID) if by_id else name
            asked.append(wish.asked(key, self.world.by_name.get((name, index))))
        return asked

    def send(self, client: Client, body: FetchRequest) -> None:
        incremental = body.session_epoch > 0
        previous, previous_asked = client.parked, client.asked
        self.world.now_ms += 1  # so that every request has a time of its own
        for replica in self.world.by_name.values():
            replica.ends[self.world.now_ms] = replica.log_end_offset
        received = self.sessions.receive(body, client.version, client.fetcher, self.world.now_ms)
        asked = client.twin.request(body, client.acl_version != self.sessions.acl_version)
        client.acl_version = self.sessions.acl_version
        if client.fetcher is FOLLOWER:
            self.note_follower(client, body, refused=isinstance(received.verdict, Refusal))
        if incremental:
            client.epoch = next_epoch(client.epoch)
            assert received.woken == ([previous] if previous is not None else [])
            if previous is not None:
                assert previous_asked is not None
                client.parked = client.asked = None
                self.world.woken.pop(previous, None)
                overtaken = self.world.finish(previous)
                assert (overtaken.error, overtaken.session_id, overtaken.parts) == (71, client.session_id, {})
        else:
            self.world.answer(received.woken)
            self.deliver()
        if isinstance(received.verdict, Refusal):
            # The sessions have grown too big for their memory.
            assert received.verdict.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert client.session_id not in self.sessions.cache
            return
        parked = self.sessions.park(received.verdict)
        assert parked == (not client.twin.complete(asked))
        client.asked = asked
        if parked:
            client.parked = received.verdict
        else:
            self.finish(client, received.verdict)

    def note_follower(self, client: Client, body: FetchRequest, refused: bool) -> None:
        by_id = client.version == BY_ID
        for topic in body.topics:
            for asked in topic.partitions:
                replica = client.twin.replica((topic.topic_id if by_id else topic.topic, asked.partition))
                if replica is not None:
                    replica.reached = max(replica.reached, asked.fetch_offset)
        for key, entry in client.twin.entries.items():
            replica = client.twin.replica(key)
            if replica is not None and not refused and client.twin.fault(key) is None:
                replica.fetched_by_follower(entry.offset, self.world.now_ms)

    def finish(self, client: Client, fetch: Fetch) -> None:
        assert client.asked is not None
        session = fetch.session
        bytes_limit, client.asked, client.parked = client.asked.bytes_max, None, None
        self.world.woken.pop(fetch, None)
        waiting = list(session.ready)
        reply = self.world.finish(fetch)
        assert reply.error == 0
        client.twin.check(reply.parts, full=fetch.full, bytes_max=bytes_limit)
        if fetch.full:
            client.session_id, client.epoch = reply.session_id, 1
            assert list(client.twin.entries) == sorted_like(reply.order, client.twin)
        else:
            assert reply.session_id == (client.session_id if client.twin.entries else 0)
        client.twin.told(reply.parts)
        client.advanced = [
            Wish((entry.replica.topic, entry.index), "high watermark", 1 << 20, -1, -1)
            for entry in waiting
            if entry.replica is not None and (entry.topic, entry.index) in reply.parts
        ]
        client.count_turns(waiting, reply)
        # Nobody tells a session of changes any more once another one has its slot: its waiter is answered at once.
        for evicted in [woken for woken in self.world.woken if not woken.session.subscribed]:
            self.finish(next(owner for owner in self.everybody if owner.parked is evicted), evicted)

    def deliver(self) -> None:
        while self.world.woken:
            fetch = next(iter(self.world.woken))
            client = next(client for client in self.everybody if client.parked is fetch)
            self.finish(client, fetch)

    # What always holds.

    def live(self) -> list[tuple[Client, FetchSession]]:
        known = [(client, self.sessions.cache.get(client.session_id)) for client in self.everybody]
        return [(client, session) for client, session in known if session is not None]

    @invariant()
    def every_answer_is_that_of_the_twin(self) -> None:
        for client, session in self.live():
            probe = Fetch(session, full=False, opens_session=False, bytes_max=UNLIMITED, bytes_min=0, wait_ms_max=0)
            parts = {(entry.topic, entry.index): data for entry, data in build_parts(probe, read)[0]}
            client.twin.check(parts, full=False, bytes_max=UNLIMITED)

    @invariant()
    def every_entry_is_where_it_belongs(self) -> None:
        for client, session in self.live():
            twin = client.twin
            keys = twin.entries
            faults = {key for key in keys if twin.fault(key) is not None}
            assert keys_of(session) == keys_of(twin.entries)
            assert keys_of(session.faults) == faults
            assert keys_of(session.ready) == {key for key in keys if twin.readable(key)}
            assert keys_of(session.held) == {key for key in keys if twin.held(key) and twin.has_data(key)}
            assert keys_of(session.remote) == {key for key in keys if twin.readable(key) and twin.is_remote(key)}
            assert keys_of(session.quiet) == {key for key in keys if key not in faults and twin.news(key)}

    @invariant()
    def a_parked_fetch_wakes_when_it_is_complete_and_not_before(self) -> None:
        for client in self.everybody:
            if client.parked is None or client.parked in self.closed_and_not_answered():
                continue
            assert client.asked is not None
            client.asked.was_complete |= client.twin.complete(client.asked)
            assert client.parked.woken == client.asked.was_complete
            assert client.parked.session.available_bytes == client.twin.available_bytes()
            assert (client.parked in self.world.woken) == client.parked.woken

    def closed_and_not_answered(self) -> set[Fetch]:
        """Their sessions are watched no longer, so nothing is known of them but what the answer will say."""
        return {fetch for fetch in self.world.woken if not fetch.session.subscribed}

    @invariant()
    def everybody_watches_exactly_his_partitions(self) -> None:
        sessions = [session for _, session in self.live()]
        sessions += [fetch.session for fetch in self.sessions.parked if fetch.full]
        wanted = sorted((id(entry), entry.index) for session in sessions for entry in session)
        watched = [entry for replica in self.world.by_name.values() for entry in watching(replica)]
        absent = {
            key
            for session in sessions
            for entry in session
            if entry.replica is None
            for key in [(entry.topic, entry.index)]
        }
        for topic, index in absent:
            name, topic_id = (topic, b"") if isinstance(topic, str) else ("", topic)
            watched += self.sessions._subscriptions.absent(name, topic_id, index)
        assert sorted((id(entry), entry.index) for entry in watched) == wanted
        assert self.sessions.anybody_waits_for_partitions == bool(absent)

    @invariant()
    def a_follower_is_in_sync_exactly_as_long_as_if_every_fetch_looked_at_it(self) -> None:
        """Never shorter than by its last fetch from the log end, and only by an end of the log that it has reached."""
        for replica in self.world.by_name.values():
            check_in_sync(replica)

    @invariant()
    def the_cache_counts_right(self) -> None:
        cache = self.sessions.cache
        assert len(cache) <= 4
        assert cache.partitions == sum(session.size for session in cache.values()) <= 20
        assert all(session.size == len(list(session)) > 0 for session in cache.values())

    @invariant()
    def turns_end_with_readiness(self) -> None:
        for client, session in self.live():
            client.turns = {entry: turn for entry, turn in client.turns.items() if entry in session.ready}


TestFetchSessionsAndTheirTwins = FetchSessionsAndTheirTwins.TestCase
TestFetchSessionsAndTheirTwins.settings = MACHINE_SETTINGS
