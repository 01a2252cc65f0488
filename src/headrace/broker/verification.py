"""Whether partitions are in a transaction, asked of its coordinator before the first records of it are taken.

Questions for one node go together, one request at a time; who asks the same while it is under way gets the same
answer. Nobody waits for longer than ANSWER_MS_MAX: a producer that hears NOT_ENOUGH_REPLICAS sends again, in any
version.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from headrace.broker.partitions import Hosted
from headrace.core.cluster import NO_LEADER
from headrace.core.internal_topics import TRANSACTION_STATE, coordinating_partition
from headrace.core.transaction import Claim
from headrace.core.verified import Verified
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

CLIENT_ID: Final = "headrace-verify"
VERSION: Final = 4
ANSWER_MS_MAX: Final = 5_000
WAITING_MAX: Final = 10_000
"""Batches that wait for an answer at one time. One more is refused as if the coordinator were away."""
QUESTIONS_MAX: Final = 1_000
"""In one request."""

AWAY: Final = ErrorCode.NOT_ENOUGH_REPLICAS
_MEANING: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE: ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS: AWAY,
    ErrorCode.NETWORK_EXCEPTION: AWAY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: AWAY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: AWAY,
    ErrorCode.NOT_COORDINATOR: AWAY,
    ErrorCode.REQUEST_TIMED_OUT: AWAY,
}
"""What a coordinator says, as a producer hears it; other codes stay."""

Then = Callable[[ErrorCode, Verified | None], None]


class _Question:
    __slots__ = ("claim", "partition", "since_ms", "thens", "transactional_id", "verified")

    def __init__(
        self, partition: Hosted, transactional_id: str, claim: Claim, verified: Verified, since_ms: int
    ) -> None:
        self.partition = partition
        self.transactional_id = transactional_id
        self.claim = claim
        self.verified = verified
        self.since_ms = since_ms
        self.thens: list[Then] = []


class Verification:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._asked: dict[tuple[Hosted, Verified, str], _Question] = {}
        self._queued: dict[int, list[_Question]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.waiting = 0
        self.failures = self.answered = self.waited_ms = 0

    def verify(
        self,
        partition: Hosted,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        then: Then,
        sequence: int = -1,
    ) -> None:
        """`then` gets NONE and what `admit` wants, or why not; perhaps before this returns.

        Why not is TRANSACTION_ABORTABLE where the partition is not in the transaction, and NOT_ENOUGH_REPLICAS where
        nobody can say for now.
        """
        broker = self._broker
        now_ms = broker.clock.monotonic_ms()
        verified = partition.begin_verification(producer_id, epoch, sequence, now_ms)
        if verified is None or not broker.config.transaction_partition_verification_enable:
            then(ErrorCode.NONE, verified)
            return
        question = self._asked.get((partition, verified, transactional_id))
        if question is None:
            claim = Claim(producer_id, epoch)
            question = _Question(partition, transactional_id, claim, verified, now_ms)
            self._ask(question, then)
        elif self._has_place(then):
            question.thens.append(then)

    def _has_place(self, then: Then) -> bool:
        if self.waiting < WAITING_MAX:
            self.waiting += 1
            return True
        self.failures += 1
        then(AWAY, None)
        return False

    def _ask(self, question: _Question, then: Then) -> None:
        broker, transactional_id = self._broker, question.transactional_id
        node_id = self._coordinator_of(transactional_id)
        if node_id in (NO_LEADER, broker.node_id):
            self.waiting += 1
            question.thens.append(then)
            in_question = question.partition.topic, question.partition.index
            if node_id == NO_LEADER:
                self._answer(question, AWAY)
            else:
                broker.transactions.verify(
                    transactional_id,
                    question.claim,
                    [in_question],
                    lambda codes: self._answer(question, codes[in_question]),
                )
        elif self._has_place(then):
            question.thens.append(then)
            self._asked[question.partition, question.verified, transactional_id] = question
            self._queued.setdefault(node_id, []).append(question)
            if node_id not in self._tasks:
                self._tasks[node_id] = broker.loop.create_task(self._ask_all(node_id))

    def _coordinator_of(self, transactional_id: str) -> int:
        image = self._broker.image
        topic = image.topics.get(TRANSACTION_STATE)
        if topic is None:
            return NO_LEADER
        index = coordinating_partition(TRANSACTION_STATE, transactional_id, len(topic.partitions))
        return image.leader_of(topic.partitions[index])

    async def _ask_all(self, node_id: int) -> None:
        """Until nobody has a question for the node any more."""
        try:
            while queued := self._queued.pop(node_id, None):
                asked, later = _of_one_request(queued)
                if later:
                    self._queued[node_id] = later
                await self._ask_some(node_id, asked)
        finally:
            del self._tasks[node_id]

    async def _ask_some(self, node_id: int, questions: list[_Question]) -> None:
        try:
            answer = await self._broker.peers.ask(
                node_id, _request(questions), AddPartitionsToTxnResponse, VERSION, ANSWER_MS_MAX, CLIENT_ID
            )
            codes = {} if answer.error_code else _codes(answer)
        except PeerLost:
            codes = {}
        for question in questions:
            partition = question.partition
            del self._asked[partition, question.verified, question.transactional_id]
            self._answer(question, codes.get((question.transactional_id, partition.topic, partition.index), AWAY))

    def _answer(self, question: _Question, code: ErrorCode) -> None:
        error = _MEANING.get(code, code)
        self.answered += 1
        self.failures += error is not ErrorCode.NONE
        self.waited_ms += self._broker.clock.monotonic_ms() - question.since_ms
        self.waiting -= len(question.thens)
        for then in question.thens:
            then(error, None if error else question.verified)

    async def close(self) -> None:
        """The node stops: whoever waits is not answered any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _of_one_request(queued: list[_Question]) -> tuple[list[_Question], list[_Question]]:
    """What goes now, and the rest. An answer names no producer: of one transactional id only one is asked about."""
    claims: dict[str, Claim] = {}
    now: list[_Question] = []
    later: list[_Question] = []
    for question in queued:
        fits = len(now) < QUESTIONS_MAX and (
            claims.setdefault(question.transactional_id, question.claim) == question.claim
        )
        (now if fits else later).append(question)
    return now, later


def _request(questions: Iterable[_Question]) -> AddPartitionsToTxnRequest:
    transactions: dict[str, tuple[Claim, dict[str, list[int]]]] = {}
    for question in questions:
        _, topics = transactions.setdefault(question.transactional_id, (question.claim, {}))
        indexes = topics.setdefault(question.partition.topic, [])
        if question.partition.index not in indexes:
            indexes.append(question.partition.index)
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=claim.producer_id,
                producer_epoch=claim.epoch,
                verify_only=True,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
            )
            for transactional_id, (claim, topics) in transactions.items()
        ]
    )


def _codes(answer: AddPartitionsToTxnResponse) -> dict[tuple[str, str, int], ErrorCode]:
    return {
        (result.transactional_id, topic.name, found.partition_index): ErrorCode(found.partition_error_code)
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for found in topic.results_by_partition
    }
