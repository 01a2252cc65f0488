"""The slots for fetch sessions, and who has to go when they are taken."""

from headrace.core.fetch_session import FetchSession

EVICTION_AGE_MS = 120_000
"""Sessions that are younger, or were used more recently, are spared. A constant, as in Kafka."""


class SessionCache:
    """Bounded twice: by slots, and by the partitions in all sessions together, since those are what memory goes to."""

    def __init__(self, slots_max: int, partitions_max: int) -> None:
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._sessions: dict[int, FetchSession] = {}  # the least recently used one first
        self.partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._sessions

    def values(self) -> list[FetchSession]:
        return list(self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """On every use: the order of this dict is what makes the eviction least-recently-used."""
        session.last_used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)

    def grew(self, partitions: int) -> bool:
        """A session holds that many more; False when all of them together now hold too many."""
        self.partitions += partitions
        return self.partitions <= self._partitions_max

    def remove(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self.partitions -= session.size

    def add(self, session: FetchSession, session_id: int, now_ms: int) -> None:
        session.id = session_id
        session.created_ms = session.last_used_ms = now_ms
        self._sessions[session_id] = session
        self.partitions += session.size

    def room_for(self, candidate: FetchSession, now_ms: int) -> list[FetchSession] | None:
        """The sessions that the candidate may take the place of, mostly none; None when it gets no slot."""
        fits = self.partitions + candidate.size <= self._partitions_max
        if fits and len(self._sessions) < self._slots_max:
            return []
        victim = self._victim(candidate, now_ms)
        if victim is None or self.partitions - victim.size + candidate.size > self._partitions_max:
            return None
        return [victim]

    def _victim(self, candidate: FetchSession, now_ms: int) -> FetchSession | None:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return None
        if now_ms - oldest.last_used_ms > EVICTION_AGE_MS:
            return oldest
        unprivileged = [session for session in self._sessions.values() if not session.privileged]
        if candidate.privileged and unprivileged:
            return min(unprivileged, key=lambda session: session.size)
        rivals = self._sessions.values() if candidate.privileged else unprivileged
        smaller = [
            session
            for session in rivals
            if now_ms - session.created_ms > EVICTION_AGE_MS and session.size < candidate.size
        ]
        return min(smaller, key=lambda session: session.size, default=None)
