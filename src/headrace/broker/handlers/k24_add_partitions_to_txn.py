"""AddPartitionsToTxn, versions 0-5: partitions that a producer is about to write to become a part of its transaction.

From 4 on it comes from nodes, for many transactions at once: a leader asks before it takes records (verify only).
2 knows that a fenced producer has an error of its own (90 instead of 47), 3 flexible.
"""

from itertools import chain

from headrace.broker.broker import Broker
from headrace.broker.handlers.transactional import epoch_error, may_use, unwritable
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.transaction import Claim, TopicPartition
from headrace.errors import ErrorCode
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BATCHED_SINCE = 4
FENCED_SINCE = 2

PARTITIONS_MAX = 200_000
"""In one request. Whoever sends more is disconnected."""

Codes = dict[TopicPartition, ErrorCode]


def handle(broker: Broker, request: Request[AddPartitionsToTxnRequest]) -> None:
    _check_size(request.body)
    if request.version >= BATCHED_SINCE:
        _Batched(broker, request).start()
        return
    body = request.body
    topics = body.v3_and_below_topics
    version = request.version
    claim = Claim(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)

    def answer(codes: Codes) -> None:
        request.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, codes)))

    def settled(error: ErrorCode) -> None:
        answer(dict.fromkeys(partitions, epoch_error(error, version, FENCED_SINCE)))

    partitions = _partitions(topics)
    refused = _refusals(broker, request.principal, body.v3_and_below_transactional_id, partitions)
    if refused:
        answer(refused)
        return
    broker.transactions.add_partitions(body.v3_and_below_transactional_id, claim, frozenset(partitions), settled)


def _check_size(body: AddPartitionsToTxnRequest) -> None:
    topics = chain(body.v3_and_below_topics, *(one.topics for one in body.transactions))
    if sum(1 + len(topic.partitions) for topic in topics) > PARTITIONS_MAX:
        raise ProtocolError(f"more than {PARTITIONS_MAX} partitions cannot be added to transactions at once")


def _partitions(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def _refusals(broker: Broker, principal: str, transactional_id: str, partitions: list[TopicPartition]) -> Codes:
    """All or nothing: what is not to blame itself was not attempted (55). Empty: nothing is in the way."""
    if not transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    if not may_use(broker, principal, Operation.WRITE, transactional_id):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    blamed = {partition: unwritable(broker, principal, partition) for partition in partitions}
    if not any(blamed.values()):
        return {}
    return {partition: error or ErrorCode.OPERATION_NOT_ATTEMPTED for partition, error in blamed.items()}


def _results(topics: list[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition, partition_error_code=codes[topic.name, partition]
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


class _Batched:
    """The transactions of one request: answered when all of them are settled."""

    def __init__(self, broker: Broker, request: Request[AddPartitionsToTxnRequest]) -> None:
        self._broker = broker
        self._request = request
        self._results: list[AddPartitionsToTxnResult] = []
        self._open = 1

    def start(self) -> None:
        if not self._broker.allowed_on_cluster(self._request.principal, Operation.CLUSTER_ACTION):
            error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            self._request.reply(AddPartitionsToTxnResponse(error_code=error))
            return
        for asked in self._request.body.transactions:
            self._open += 1
            self._take(asked)
        self._settle()

    def _take(self, asked: AddPartitionsToTxnTransaction) -> None:
        transactions = self._broker.transactions
        transactional_id, claim = asked.transactional_id, Claim(asked.producer_id, asked.producer_epoch)
        partitions = _partitions(asked.topics)
        if not transactional_id:
            self._settled(asked, dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
        elif asked.verify_only:
            transactions.verify(transactional_id, claim, partitions, lambda codes: self._settled(asked, codes))
        else:
            refused = _refusals(self._broker, self._request.principal, transactional_id, partitions)
            if refused:
                self._settled(asked, refused)
                return
            transactions.add_partitions(
                transactional_id,
                claim,
                frozenset(partitions),
                lambda error: self._settled(asked, dict.fromkeys(partitions, error)),
            )

    def _settled(self, asked: AddPartitionsToTxnTransaction, codes: Codes) -> None:
        self._results.append(
            AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id, topic_results=_results(asked.topics, codes)
            )
        )
        self._settle()

    def _settle(self) -> None:
        self._open -= 1
        if not self._open:
            self._request.reply(AddPartitionsToTxnResponse(results_by_transaction=self._results))
