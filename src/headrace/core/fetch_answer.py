"""Building the answer to a fetch, and noting what the fetcher was told once its bytes are handed over.

Bytes are read in the order of `ready`; whoever returned some goes to the end of it, so that nobody starves under a
small budget. Offsets alone never move an entry.
"""

from collections.abc import Callable
from typing import TypeAlias

from headrace.core import fetch_liveness
from headrace.core.fetch_entries import Divergence, Entry, Replica, View, limit_of
from headrace.core.fetch_session import FetchSession
from headrace.core.ownership_gate import Gated
from headrace.errors import ErrorCode
from headrace.model import Buffer
from headrace.wire.batch import HEADER_BYTES
from headrace.wire.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData

MISFITS_MAX = 8
"""Reads in a row that the rest of the budget was too small for, before the budget counts as spent."""

NO_RECORDS = b""

_GATED = {
    Gated.UNOWNED: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Gated.DENIED: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}

Read: TypeAlias = Callable[[Replica, int, int, int, bool], Buffer | ErrorCode]
"""(replica, offset, bytes_max, limit_offset, at_least_one batch) -> whole batches, or why they cannot be had."""


FindAborted: TypeAlias = Callable[[Replica, int, Buffer], list[AbortedTransaction] | ErrorCode]
"""(replica, offset, the records that were read from there on) -> what a reader of them must leave out."""

Part: TypeAlias = tuple[Entry, PartitionData]


def none_aborted(replica: Replica, offset: int, records: Buffer) -> list[AbortedTransaction] | ErrorCode:
    del replica, offset, records
    return []


class Fetch:
    """One fetch request on its way to its answer."""

    __slots__ = (
        "bytes_max",
        "bytes_min",
        "epoch",
        "full",
        "opens_session",
        "session",
        "session_id",
        "wait_ms_max",
        "woken",
    )

    def __init__(
        self,
        session: FetchSession,
        *,
        full: bool,
        opens_session: bool,
        bytes_max: int,
        bytes_min: int,
        wait_ms_max: int,
    ) -> None:
        self.session = session
        self.session_id = session.id  # as it was on receipt: an evicted session still answers under its id
        self.epoch = session.epoch  # if the session's is another one later, this fetch was overtaken
        self.full = full
        self.opens_session = opens_session
        self.bytes_max = bytes_max
        self.bytes_min = min(bytes_min, bytes_max)
        self.wait_ms_max = wait_ms_max
        self.woken = False

    @property
    def overtaken(self) -> bool:
        return not self.full and self.epoch != self.session.epoch


class Answer:
    """`woken` are fetches of sessions that had to go for this one's: they are to be answered as well."""

    __slots__ = ("error", "fetch", "parts", "session_id", "throttle_ms", "woken")

    def __init__(self, fetch: Fetch, session_id: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.fetch = fetch
        self.session_id = session_id
        self.error = error
        self.throttle_ms = 0
        self.parts: list[Part] = []
        self.woken: list[Fetch] = []


def read_ready(fetch: Fetch, read: Read) -> tuple[dict[Entry, Buffer | ErrorCode], int]:
    """What the ready entries give within the budget, and how many were looked at."""
    session = fetch.session
    budget = fetch.bytes_max
    found: dict[Entry, Buffer | ErrorCode] = {}
    at_least_one = True
    misfits = visited = 0
    for entry in session.ready:
        if not at_least_one and budget < HEADER_BYTES:
            break
        visited += 1
        replica = entry.replica
        assert replica is not None  # else it were in `faults`
        records = read(
            replica,
            entry.fetch_offset,
            min(entry.max_bytes, budget),
            limit_of(replica, session.view),
            at_least_one,
        )
        if isinstance(records, ErrorCode):
            found[entry] = records
        elif records:
            found[entry] = records
            budget -= len(records)
            at_least_one = False
            misfits = 0
        elif entry.max_bytes > budget:
            misfits += 1
            if misfits == MISFITS_MAX:
                break
    return found, visited


def build_parts(fetch: Fetch, read: Read, find_aborted: FindAborted = none_aborted) -> tuple[list[Part], int]:
    """The partitions of the answer, and how many were looked at: all of them in a full answer, else those with news."""
    session = fetch.session
    found, visited = read_ready(fetch, read) if session.ready else ({}, 0)
    aborted = find_aborted if session.view is View.STABLE else None
    if fetch.full:
        return [(entry, _data(entry, found.get(entry, NO_RECORDS), aborted)) for entry in session], session.size
    parts = [(entry, _data(entry, records, aborted)) for entry, records in found.items()]
    parts.extend((entry, _data(entry, NO_RECORDS, aborted)) for entry in session.faults)
    parts.extend((entry, _data(entry, NO_RECORDS, aborted)) for entry in session.quiet if entry not in found)
    return parts, visited + len(parts) - len(found)


def _data(entry: Entry, found: Buffer | ErrorCode, find_aborted: FindAborted | None) -> PartitionData:
    fault = entry.fault
    if find_aborted is None:
        aborted: list[AbortedTransaction] | ErrorCode | None = None
    elif found and not isinstance(found, ErrorCode) and entry.replica is not None:
        aborted = find_aborted(entry.replica, entry.fetch_offset, found)
    else:
        aborted = []
    if isinstance(aborted, ErrorCode):
        return error_data(entry.index, aborted)
    if isinstance(found, ErrorCode):
        return error_data(entry.index, found)
    if fault is not None and isinstance(fault, ErrorCode):
        data = error_data(entry.index, fault)
        if fault is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE and entry.replica is not None:
            data.high_watermark = entry.replica.high_watermark
            data.log_start_offset = entry.replica.log_start_offset
        return data
    if fault is Gated.UNOWNED or fault is Gated.DENIED:
        return error_data(entry.index, _GATED[fault])
    replica = entry.replica
    assert replica is not None  # else it had a fault
    data = PartitionData(
        partition_index=entry.index,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        log_start_offset=replica.log_start_offset,
        aborted_transactions=aborted,
        records=found,
    )
    if isinstance(fault, Divergence):
        data.diverging_epoch = EpochEndOffset(epoch=fault.epoch, end_offset=fault.end_offset)
    return data


def error_data(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=NO_RECORDS,
    )


def handed_over(answer: Answer) -> None:
    """To be called in the very step that gives the bytes to the connection, and only if they are the ones built."""
    session = answer.fetch.session
    if session.id == 0 or answer.error:
        return
    ready = session.ready
    session.announced = True
    for entry, data in answer.parts:
        replica = entry.replica
        # Whoever has to truncate first, or to begin anew, takes nothing else from an answer.
        entry.sent_high_watermark = -1 if isinstance(entry.fault, Divergence) else data.high_watermark
        entry.sent_log_start = data.log_start_offset
        if data.error_code:
            entry.sent_high_watermark = entry.sent_log_start = -1
        if replica is None or entry.fault is not None:
            continue
        session.compare(entry, replica)
        if data.records and entry in ready:
            ready[entry] = ready.pop(entry)
            if session.privileged:
                fetch_liveness.records_sent(entry)
