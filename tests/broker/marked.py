"""Transactions without their coordinator: batches of them, the markers that end them, and reading committed records."""

from collections.abc import Sequence

from headrace.model import Buffer
from headrace.wire.batch import headers, read_records
from headrace.wire.messages.fetch import FetchResponse, PartitionData
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from headrace.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.asking import (
    FETCH_VERSION,
    LATEST,
    TOPIC,
    Client,
    fetch_request,
    only_partition,
    produce_request,
    records_of,
)

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""For tests without a coordinator."""
PID = 4711


def in_transaction(sequence: int, *values: bytes, pid: int = PID, epoch: int = 0) -> bytearray:
    return records_of(values or (b"%d" % sequence,), producer=(pid, epoch, sequence), transactional=True)


async def produce(
    client: Client, raw: Buffer, partition: int = 0, *, tid: str | None = "t", version: int = 12, acks: int = -1
) -> PartitionProduceResponse:
    request = produce_request({partition: raw}, acks=acks)
    request.transactional_id = tid
    return only_partition(await client.ask(request, ProduceResponse, version))


def marker_request(
    committed: bool,
    *,
    pid: int = PID,
    epoch: int = 0,
    coordinator_epoch: int = 1,
    topic: str = TOPIC,
    partitions: Sequence[int] = (0,),
) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=pid,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        coordinator_epoch=coordinator_epoch,
    )
    return WriteTxnMarkersRequest(markers=[marker])


async def end(
    client: Client,
    committed: bool,
    *,
    pid: int = PID,
    epoch: int = 0,
    coordinator_epoch: int = 1,
    topic: str = TOPIC,
    partitions: Sequence[int] = (0,),
) -> list[int]:
    """The error of each partition."""
    request = marker_request(
        committed, pid=pid, epoch=epoch, coordinator_epoch=coordinator_epoch, topic=topic, partitions=partitions
    )
    answer = await client.peer.request(request, WriteTxnMarkersResponse, 1, timeout_ms=60_000)
    (result,) = answer.markers
    return [partition.error_code for partition in result.topics[0].partitions]


async def fetch_committed(client: Client, offset: int, *, max_wait_ms: int = 0) -> PartitionData:
    request = fetch_request(offset, max_wait_ms=max_wait_ms)
    request.isolation_level = 1
    answer = await client.ask(request, FetchResponse, FETCH_VERSION)
    return answer.responses[0].partitions[0]


async def read_committed(client: Client, offset: int = 0) -> list[bytes | None]:
    """The values that a consumer of Kafka's would show: to the last stable offset, without what was aborted."""
    values: list[bytes | None] = []
    while True:
        fetched = await fetch_committed(client, offset)
        assert fetched.error_code == 0
        if not fetched.records:
            assert offset == fetched.last_stable_offset
            return values
        values += shown(fetched)
        offset = [header.last_offset + 1 for _, header in headers(fetched.records)][-1]


def shown(fetched: PartitionData) -> list[bytes | None]:
    records = fetched.records or b""
    due = sorted((a.first_offset, a.producer_id) for a in fetched.aborted_transactions or ())
    aborting: set[int] = set()
    values: list[bytes | None] = []
    for position, header in headers(records):
        while due and due[0][0] <= header.last_offset:
            aborting.add(due.pop(0)[1])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            values += [record.value for record in read_records(records, position)]
    return values


async def offset_of(client: Client, timestamp: int = LATEST, *, committed: bool = True) -> tuple[int, int]:
    """Error and offset that ListOffsets tells."""
    asked = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=[asked], timeout_ms=1_000)
    answer = await client.ask(request, ListOffsetsResponse, 10)
    (found,) = answer.topics[0].partitions
    return found.error_code, found.offset
