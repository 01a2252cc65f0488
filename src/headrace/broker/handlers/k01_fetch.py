"""Fetch, versions 4-18: records, for whoever already knows which offset comes next.

5 log start offset, 7 incremental sessions, 9 leader epochs, 10 zstd, 11 rack, 12 diverging epochs and current leader,
13 topics by id, 15 replica state, 17 directory id, 18 high watermark of the fetcher (read, and not used).

What is in the tier alone is read there (broker.tier_fetching). Not yet: preferred read replicas, quotas.
"""

import contextlib
import logging
from collections.abc import Collection

from headrace.broker.broker import Broker
from headrace.broker.current_leaders import current_leader, endpoints
from headrace.broker.ownership_clients import claim_for_fetch
from headrace.broker.partitions import Hosted
from headrace.broker.requests import Request
from headrace.broker.tier_fetching import ask_for
from headrace.broker.tier_loads import Want
from headrace.core.acl import Operation
from headrace.core.fetch_answer import Answer, Fetch, error_data, handed_over
from headrace.core.fetch_entries import Replica, TopicKey, View
from headrace.core.fetch_session import Fetcher
from headrace.core.fetch_sessions import Refusal
from headrace.core.ownership import FETCH
from headrace.core.ownership_gate import FETCH_ERRORS, Gated, Pass
from headrace.core.producers import AbortedTransaction as Aborted
from headrace.errors import CorruptLog, ErrorCode
from headrace.model import Buffer
from headrace.net.connection import Connection
from headrace.wire.batch import CODEC_BITS, headers
from headrace.wire.compression import Codec
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.wire.messages.produce import LeaderIdAndEpoch

log = logging.getLogger(__name__)

REPLICA_STATE_SINCE = 15
CURRENT_LEADER_SINCE = 12
NODE_ENDPOINTS_SINCE = 16
ZSTD_SINCE = 10
TELLS_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(broker: Broker, request: Request[FetchRequest]) -> None:
    body = request.body
    fetcher = _fetcher(request)
    if fetcher.privileged:
        refusal = _node_refusal(broker, fetcher)
        if refusal:
            request.reply(_refuse_node(body, refusal))
            return
    sessions = broker.fetch_events.sessions
    if request.connection.claims and not fetcher.privileged:
        claim_for_fetch(broker, request, sessions.cache.get(body.session_id))
    now_ms = broker.clock.monotonic_ms()
    verdict, woken, followed = sessions.receive(body, request.version, fetcher, now_ms, request.connection)
    for replica in followed:
        assert isinstance(replica, Hosted)
        broker.isr_updates.followed(replica, now_ms)
    if log.isEnabledFor(logging.DEBUG):
        log.debug(
            "fetch %d of %s: session %d epoch %d, %d topics listed, %d forgotten",
            request.header.correlation_id,
            request.connection.peer,
            body.session_id,
            body.session_epoch,
            len(body.topics),
            len(body.forgotten_topics_data),
        )
    broker.fetch_events.answer(woken)
    if isinstance(verdict, Refusal):
        request.reply(FetchResponse(error_code=verdict.error, responses=[]))
        return
    pending = _Pending(broker, request, fetcher.privileged)
    if verdict.session.remote and broker.tier_reads is not None:
        others_wait = request.connection.others_wait
        wait_ms_max = broker.config.remote_fetch_max_wait_ms
        pending.refused = ask_for(broker.tier_reads, verdict, wait_ms_max, others_wait=others_wait)
    if sessions.park(verdict):
        request.forget_body()
        broker.fetch_events.park(verdict, pending)
    else:
        pending.answer(verdict)


def _fetcher(request: Request[FetchRequest]) -> Fetcher:
    body = request.body
    if request.version < REPLICA_STATE_SINCE:
        return Fetcher(request.principal, body.replica_id, -1)
    state = body.replica_state
    if state is None:
        return Fetcher(request.principal, -1, -1)
    return Fetcher(request.principal, state.replica_id, state.replica_epoch)


def _node_refusal(broker: Broker, fetcher: Fetcher) -> ErrorCode:
    """Whoever says that it is a node must be one, in its current incarnation."""
    if not broker.allowed_on_cluster(fetcher.principal, Operation.CLUSTER_ACTION):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not broker.is_registered(fetcher.replica_id, fetcher.broker_epoch):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _refuse_node(body: FetchRequest, error: ErrorCode) -> FetchResponse:
    """A full fetch is refused partition by partition and makes no session; others name a session that is not theirs."""
    if body.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[error_data(asked.partition, error) for asked in topic.partitions],
            )
            for topic in body.topics
        ]
    )


class _Pending:
    """A fetch request that is to be answered, now or later."""

    __slots__ = ("_broker", "_failures", "_is_committed", "_is_node", "_request", "_session_epoch", "refused")

    def __init__(self, broker: Broker, request: Request[FetchRequest], is_node: bool) -> None:
        self._is_node = is_node
        self._broker = broker
        self._request = request
        self._session_epoch = request.body.session_epoch
        self._failures: list[tuple[Hosted, OSError | CorruptLog]] = []
        self._is_committed = False
        self.refused: Collection[Replica] = ()
        """The tier is asked for too much already."""

    @property
    def connection(self) -> Connection:
        return self._request.connection

    def answer(self, fetch: Fetch) -> int:
        broker, request = self._broker, self._request
        fetch.bytes_max = min(fetch.bytes_max, request.connection.answer_bytes_max)
        self._is_committed = fetch.session.view is View.STABLE
        answer = broker.fetch_events.sessions.build(
            fetch, self._read, broker.clock.monotonic_ms(), find_aborted=self._aborted
        )
        response, sent_bytes = _response(broker, request.version, answer)
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "fetch %d of %s answered: session %d epoch %d, error %d, %d partitions, %d bytes",
                request.header.correlation_id,
                request.connection.peer,
                answer.session_id,
                self._session_epoch,
                answer.error,
                len(answer.parts),
                sent_bytes,
            )
        request.reply(response)
        handed_over(answer)
        broker.fetch_events.answer(answer.woken)
        for partition, failure in self._failures:
            broker.faults.failed(partition, "read", failure)
        return sent_bytes

    def _read(
        self, replica: Replica, offset: int, bytes_max: int, limit_offset: int, at_least_one: bool
    ) -> Buffer | ErrorCode:
        assert isinstance(replica, Hosted)
        gate = replica.own
        if gate is not None and not self._is_node:
            verdict = gate.judge(FETCH, self._request.connection)
            if verdict:
                return b"" if verdict is Pass.WAITS else FETCH_ERRORS[verdict]
        try:
            if offset < replica.local_log_start_offset:
                records = self._read_remote(replica, offset, bytes_max, limit_offset, at_least_one)
                if isinstance(records, ErrorCode):
                    return records
            else:
                records = replica.log.read(offset, bytes_max, limit_offset, at_least_one)
        except (OSError, CorruptLog) as failure:
            # Told to the broker after the answer: what it does about it may touch the very session being read.
            self._failures.append((replica, failure))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return records if self._request.version >= ZSTD_SINCE else _ahead_of_zstd(records)

    def _read_remote(
        self, replica: Hosted, offset: int, bytes_max: int, limit_offset: int, at_least_one: bool
    ) -> Buffer | ErrorCode:
        reads = self._broker.tier_reads
        if reads is None or replica in self.refused:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._request.connection.pace()
        return reads.read(Want(replica, offset, self._is_committed), bytes_max, limit_offset, at_least_one)

    def _aborted(self, replica: Replica, offset: int, records: Buffer) -> list[AbortedTransaction] | ErrorCode:
        assert isinstance(replica, Hosted)
        found: list[Aborted] = []
        is_complete = False
        try:
            if offset < replica.local_log_start_offset and self._broker.tier_reads is not None:
                found, is_complete = self._broker.tier_reads.aborted_in(Want(replica, offset, True), records)
            if not is_complete:
                found += replica.log.aborted_in(offset, records)
        except (OSError, CorruptLog) as failure:
            self._failures.append((replica, failure))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return [AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset) for a in found]


def _ahead_of_zstd(records: Buffer) -> Buffer | ErrorCode:
    """What a client from before zstd can read: it gets the error where the first batch is that it cannot."""
    with contextlib.suppress(ProtocolError):  # what lies there is broken, which is for the client to see
        for position, header in headers(records):
            if header.attributes & CODEC_BITS == Codec.ZSTD:
                return memoryview(records)[:position] if position else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return records


def _response(broker: Broker, version: int, answer: Answer) -> tuple[FetchResponse, int]:
    """The answer grouped by topic, and the bytes of records in it."""
    topics: dict[TopicKey, list[PartitionData]] = {}
    leaders: list[LeaderIdAndEpoch | None] = []
    sent_bytes = 0
    for entry, data in answer.parts:
        partitions = topics.get(entry.topic)
        if partitions is None:
            partitions = topics[entry.topic] = []
        partitions.append(data)
        if data.records:
            sent_bytes += len(data.records)
        elif data.error_code:
            broker.metrics.fetch_failures += 1
            broker.ownership.metrics.denied_fetch += entry.fault is Gated.DENIED
            if version >= CURRENT_LEADER_SINCE and data.error_code in TELLS_LEADER:
                data.current_leader = current_leader(broker, entry.topic, entry.index)
                leaders.append(data.current_leader)
    broker.metrics.bytes_out += sent_bytes
    responses = [
        FetchableTopicResponse(topic=key, partitions=partitions)
        if isinstance(key, str)
        else FetchableTopicResponse(topic_id=key, partitions=partitions)
        for key, partitions in topics.items()
    ]
    response = FetchResponse(
        throttle_time_ms=answer.throttle_ms,
        error_code=answer.error,
        session_id=answer.session_id,
        responses=responses,
    )
    if leaders and version >= NODE_ENDPOINTS_SINCE:
        response.node_endpoints = endpoints(broker, leaders)
    return response, sent_bytes
