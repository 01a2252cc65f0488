"""A producer's side of transactions: what it asks the coordinator, again and again until it is answered for good."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from headrace.client.batches import Identity
from headrace.client.cluster import Cluster, group_by_topic
from headrace.client.coordinators import Coordinators, KeyType
from headrace.client.errors import Fenced, NotReachable, TimedOut, TransactionFailed, not_initialised
from headrace.core.transactional_id import attempt_of
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.wire.messages.coordinators import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headrace.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
)
from headrace.wire.struct import Message

M = TypeVar("M", bound=Message)
R = TypeVar("R")

TXN_OFFSETS_VERSION_MAX: Final = 4
"""Later ones belong to a protocol in which brokers add partitions by themselves."""
CONCURRENT_S: Final = 0.01
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
ELSEWHERE: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Phase(Enum):
    NEW = "not begun"
    READY = "between transactions"
    OPEN = "open"
    FENCED = "fenced"
    HANDED_OVER = "handed over"


class Handle(NamedTuple):
    """An open transaction, to be committed by somebody else (`CommitGroups`)."""

    transactional_id: str
    producer_id: int
    epoch: int


class ProducerTransactions:
    """The transactions of one transactional id, one after another. Records are sent by `Sender`, who asks here whether
    a partition is a part of the transaction, and tells of records that are lost to it."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int, ask_ms_max: int) -> None:
        """`timeout_ms`: after that long the coordinator aborts a transaction by itself."""
        self.transactional_id = transactional_id
        self.phase = Phase.NEW
        self.identity: Identity | None = None
        self.failure: KafkaError | None = None
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self._timeout_ms = timeout_ms
        self._ask_ms_max = ask_ms_max
        self._joined: set[TopicPartition] = set()
        self._wanted: set[TopicPartition] = set()
        self._groups: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Nothing of it is known to the coordinator."""
        return not self._joined and not self._groups

    # For the sender.

    def has(self, partition: TopicPartition) -> bool:
        """Whether records may be sent there; if not, `join` sees to it."""
        if partition in self._joined:
            return True
        self._wanted.add(partition)
        return False

    async def join(self) -> None:
        """Adds the partitions that are wanted."""
        wanted = self._wanted - self._joined
        if not wanted or self.failure is not None:
            return
        try:
            await self._ask("partitions were not added to the transaction", self._add(wanted))
        except KafkaError as error:
            self.fail(error)
            return
        self._joined |= wanted
        self._wanted -= wanted

    def fenced(self, code: ErrorCode) -> Fenced:
        attempt = attempt_of(self.transactional_id)
        return Fenced(
            code,
            ("" if attempt is None else f"batch {attempt.batch_id} is committed already, or ")
            + f"another producer has begun with transactional id {self.transactional_id!r}, or the transaction took "
            f"longer than its {self._timeout_ms} ms and was aborted",
        )

    def fail(self, error: KafkaError) -> None:
        """It can only be aborted now; after a fence not even that is left to do."""
        if self.failure is None:
            self.failure = error
        if isinstance(error, Fenced):
            self.phase = Phase.FENCED

    # For the producer.

    async def init(self) -> Identity:
        """Fences whoever used the transactional id before, and ends what they left open."""
        known = self.identity or Identity(-1, -1)
        question = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
        )

        async def ask() -> InitProducerIdResponse:
            answer = await self._at_coordinator(question, InitProducerIdResponse)
            if answer.error_code in (ErrorCode.INVALID_TRANSACTION_TIMEOUT, ErrorCode.POLICY_VIOLATION):
                raise not_initialised(answer.error_code, self.transactional_id, self._timeout_ms)
            self._check(answer.error_code)
            return answer

        answer = await self._ask(f"transactional id {self.transactional_id!r} was not initialised", ask)
        self.identity = Identity(answer.producer_id, answer.producer_epoch, self.transactional_id)
        self.phase = Phase.READY
        return self.identity

    def begin(self) -> None:
        self._expect(Phase.READY, "begin")
        self._clear()
        self.phase = Phase.OPEN

    async def add_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """The group's offsets become those, if the transaction commits."""
        self.expect_open("send_offsets")
        if group not in self._groups:
            identity = self._known()
            question = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                group_id=group,
            )

            async def add() -> None:
                self._check((await self._at_coordinator(question, AddOffsetsToTxnResponse)).error_code)

            await self._try(f"group {group!r} was not added to the transaction", add)
            self._groups.add(group)
        await self._try(f"the offsets of group {group!r} were not taken", self._commit_offsets(group, offsets))

    async def end(self, commit: bool) -> None:
        """Afterwards it is committed, or aborted. TimedOut: which of both it will be is not known, ask again."""
        self._expect(Phase.OPEN, "commit" if commit else "abort")
        if not self.is_empty:
            identity = self._known()
            question = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=commit,
            )

            async def ask() -> None:
                self._check((await self._at_coordinator(question, EndTxnResponse)).error_code)

            try:
                await self._ask(f"the {'commit' if commit else 'abort'} was not confirmed", ask)
            except Fenced as error:
                self.fail(error)
                raise
        self._clear()
        self.phase = Phase.READY

    def hand_over(self) -> Handle | None:
        """Whoever has the handle ends it. None: nothing was written, and there is nothing to end."""
        self._expect(Phase.OPEN, "handle")
        self.phase = Phase.HANDED_OVER
        identity = self._known()
        return None if self.is_empty else Handle(self.transactional_id, identity.producer_id, identity.epoch)

    def expect_open(self, what: str, may_have_failed: bool = False) -> None:
        """Fenced, or TransactionFailed: it is of no use to go on with this one."""
        self._expect(Phase.OPEN, what)
        if self.failure is not None and not may_have_failed:
            raise TransactionFailed(
                self.failure.code, f"the transaction can only be aborted: {self.failure.message}"
            ) from self.failure

    def _expect(self, phase: Phase, what: str) -> None:
        if self.phase is Phase.FENCED and self.failure is not None:
            raise self.failure
        if self.phase is not phase:
            raise RuntimeError(f"{what}() needs a transaction that is {phase.value}; this one is {self.phase.value}")

    def _clear(self) -> None:
        self._joined.clear()
        self._wanted.clear()
        self._groups.clear()
        self.failure = None

    # How it is asked.

    def _known(self) -> Identity:
        assert self.identity is not None, "begin() comes first"
        return self.identity

    def _add(self, partitions: set[TopicPartition]) -> Callable[[], Awaitable[None]]:
        identity = self._known()
        question = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in group_by_topic(sorted(partitions)).items()
            ],
        )

        async def add() -> None:
            answer = await self._at_coordinator(question, AddPartitionsToTxnResponse)
            codes = {
                partition.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            }
            # Those that were not attempted say nothing of why.
            self._check_all(codes - {ErrorCode.OPERATION_NOT_ATTEMPTED})

        return add

    def _commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> Callable[[], Awaitable[None]]:
        identity = self._known()
        question = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(name, index)],
                            committed_metadata="",
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in group_by_topic(sorted(offsets)).items()
            ],
        )

        async def commit() -> None:
            answer = await self._coordinators.ask(
                KeyType.GROUP, group, question, TxnOffsetCommitResponse, TXN_OFFSETS_VERSION_MAX
            )
            codes = {partition.error_code for topic in answer.topics for partition in topic.partitions}
            if codes & ELSEWHERE:
                self._coordinators.forget(KeyType.GROUP, group)
            self._check_all(codes)

        return commit

    async def _at_coordinator(self, question: Message, answer: type[M]) -> M:
        return await self._coordinators.ask(
            KeyType.TRANSACTION, self.transactional_id, question, answer, question_version_max(question)
        )

    def _check(self, code: int) -> None:
        """Raises what the answer means; a KafkaError that may be tried again where it is too early to tell."""
        error = KafkaError(code)
        if error.code in ELSEWHERE:
            self._coordinators.forget(KeyType.TRANSACTION, self.transactional_id)
        if error.code in FENCED:
            raise self.fenced(error.code)
        if error.code is not ErrorCode.NONE:
            raise error

    def _check_all(self, codes: set[int]) -> None:
        """What cannot be tried again comes first."""
        for code in sorted(codes, key=lambda code: KafkaError(code).retriable):
            self._check(code)

    async def _try(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """As `_ask`; what is lost is lost to the transaction."""
        try:
            await self._ask(what, work)
        except KafkaError as error:
            self.fail(error)
            raise

    async def _ask(self, what: str, work: Callable[[], Awaitable[R]]) -> R:
        with self._cluster.tries(self._ask_ms_max) as tries:
            while True:
                try:
                    return await tries.attempt(work(), what)
                except (Fenced, TimedOut):
                    raise
                except NotReachable as error:
                    self._coordinators.forget_all()
                    await tries.again(f"{what}: {error}")
                except KafkaError as error:
                    if not error.retriable:
                        raise KafkaError(error.code, f"{what}: {error.message}") from error
                    if error.code is ErrorCode.CONCURRENT_TRANSACTIONS and tries.left_ms:
                        await asyncio.sleep(CONCURRENT_S)  # the transaction before is about to be marked as ended
                        continue
                    await tries.again(f"{what}: {error}")


def question_version_max(question: Message) -> int:
    """Versions that only brokers speak, or that need a protocol in which the epoch changes with each transaction."""
    return {AddPartitionsToTxnRequest: 3, EndTxnRequest: 4}.get(type(question), 0x7FFF)
