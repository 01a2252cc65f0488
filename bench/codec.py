"""What one message costs: our codec beside kio's, in one run.

    python -m bench.codec

Microseconds of CPU per message, the best of several interleaved rounds. Every message is byte-identical in both
codecs before it is measured. Frames are bytearrays for ours, as they arrive, and bytes for kio, which takes no other.
"""

import importlib
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import BytesIO
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from headrace.wire.compiler import decode, encode, encode_parts
from headrace.wire.messages import fetch, metadata, produce
from headrace.wire.struct import Message

ROUNDS = 7
ROUND_SECONDS = 0.02


class Case(NamedTuple):
    name: str
    message: Message
    version: int
    kio: Any


def kio(name: str, version: int, kind: str) -> Any:
    return importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")


def fetch_request(name: str, version: int, topics: int, partitions: int) -> Case:
    theirs = kio("fetch", version, "request")
    follower = version >= 17
    names = [f"topic-{n}" for n in range(topics)]
    ids = [uuid.UUID(int=n + 1) for n in range(topics)]
    mine = fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=52428800,
        session_id=77,
        session_epoch=3,
        topics=[
            fetch.FetchTopic(
                topic=names[n],
                topic_id=ids[n].bytes,
                partitions=[
                    fetch.FetchPartition(
                        partition=p,
                        current_leader_epoch=4,
                        fetch_offset=1000 + p,
                        partition_max_bytes=1048576,
                        replica_directory_id=ids[0].bytes if follower else bytes(16),
                    )
                    for p in range(partitions)
                ],
            )
            for n in range(topics)
        ],
    )
    extra = {"replica_directory_id": ids[0]} if follower else {}
    other = theirs.FetchRequest(
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=52428800,
        session_id=77,
        session_epoch=3,
        topics=tuple(
            theirs.FetchTopic(
                **({"topic_id": ids[n]} if version >= 13 else {"topic": names[n]}),
                partitions=tuple(
                    theirs.FetchPartition(
                        partition=p,
                        current_leader_epoch=4,
                        fetch_offset=1000 + p,
                        partition_max_bytes=1048576,
                        **extra,
                    )
                    for p in range(partitions)
                ),
            )
            for n in range(topics)
        ),
        forgotten_topics_data=(),
    )
    return Case(name, mine, version, other)


def produce_request(name: str, version: int, partitions: int, record_bytes: int) -> Case:
    theirs = kio("produce", version, "request")
    records = bytes(record_bytes)
    mine = produce.ProduceRequest(
        acks=-1,
        timeout_ms=30000,
        topic_data=[
            produce.TopicProduceData(
                name="events",
                partition_data=[produce.PartitionProduceData(index=p, records=records) for p in range(partitions)],
            )
        ],
    )
    other = theirs.ProduceRequest(
        acks=-1,
        timeout=timedelta(seconds=30),
        topic_data=(
            theirs.TopicProduceData(
                name="events",
                partition_data=tuple(theirs.PartitionProduceData(index=p, records=records) for p in range(partitions)),
            ),
        ),
    )
    return Case(name, mine, version, other)


def produce_response(name: str, version: int, partitions: int) -> Case:
    theirs = kio("produce", version, "response")
    mine = produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name="events",
                partition_responses=[
                    produce.PartitionProduceResponse(index=p, base_offset=99, log_start_offset=0)
                    for p in range(partitions)
                ],
            )
        ]
    )
    late: dict[str, Any] = {"record_errors": ()} if version >= 8 else {}
    other = theirs.ProduceResponse(
        responses=(
            theirs.TopicProduceResponse(
                name="events",
                partition_responses=tuple(
                    theirs.PartitionProduceResponse(
                        index=p, error_code=ErrorCode.none, base_offset=99, log_start_offset=0, **late
                    )
                    for p in range(partitions)
                ),
            ),
        )
    )
    return Case(name, mine, version, other)


def fetch_response(name: str, version: int, partitions: int, record_bytes: int) -> Case:
    theirs = kio("fetch", version, "response")
    records = bytes(record_bytes)
    mine = fetch.FetchResponse(
        session_id=77,
        responses=[
            fetch.FetchableTopicResponse(
                topic="events",
                partitions=[
                    fetch.PartitionData(
                        partition_index=p, high_watermark=9, last_stable_offset=9, log_start_offset=0, records=records
                    )
                    for p in range(partitions)
                ],
            )
        ],
    )
    other = theirs.FetchResponse(
        throttle_time=timedelta(0),
        error_code=ErrorCode.none,
        session_id=77,
        responses=(
            theirs.FetchableTopicResponse(
                topic="events",
                partitions=tuple(
                    theirs.PartitionData(
                        partition_index=p,
                        error_code=ErrorCode.none,
                        high_watermark=9,
                        last_stable_offset=9,
                        log_start_offset=0,
                        aborted_transactions=None,
                        records=records,
                    )
                    for p in range(partitions)
                ),
            ),
        ),
    )
    return Case(name, mine, version, other)


def metadata_response(name: str, version: int) -> Case:
    theirs = kio("metadata", version, "response")
    nodes = (1, 2, 3)
    mine = metadata.MetadataResponse(
        brokers=[metadata.MetadataResponseBroker(node_id=n, host="127.0.0.1", port=9092) for n in nodes],
        cluster_id="cluster",
        controller_id=1,
        topics=[
            metadata.MetadataResponseTopic(
                name=f"topic-{t}",
                partitions=[
                    metadata.MetadataResponsePartition(
                        partition_index=p, leader_id=1, leader_epoch=4, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
                    )
                    for p in range(6)
                ],
            )
            for t in range(100)
        ],
    )
    identity: dict[str, Any] = {"topic_id": None} if version >= 10 else {}
    other = theirs.MetadataResponse(
        throttle_time=timedelta(0),
        brokers=tuple(theirs.MetadataResponseBroker(node_id=n, host="127.0.0.1", port=9092) for n in nodes),
        cluster_id="cluster",
        controller_id=1,
        topics=tuple(
            theirs.MetadataResponseTopic(
                error_code=ErrorCode.none,
                name=f"topic-{t}",
                **identity,
                partitions=tuple(
                    theirs.MetadataResponsePartition(
                        error_code=ErrorCode.none,
                        partition_index=p,
                        leader_id=1,
                        leader_epoch=4,
                        replica_nodes=nodes,
                        isr_nodes=nodes,
                    )
                    for p in range(6)
                ),
            )
            for t in range(100)
        ),
    )
    return Case(name, mine, version, other)


def cases() -> Iterator[Case]:
    yield fetch_request("Fetch v12 request, 1 x 1", 12, 1, 1)
    yield fetch_request("Fetch v12 request, 1 x 6", 12, 1, 6)
    yield fetch_request("Fetch v12 request, 1 x 1000", 12, 1, 1000)
    yield fetch_request("Fetch v12 request, 100 x 10", 12, 100, 10)
    yield fetch_request("Fetch v17 follower, 1 x 1000", 17, 1, 1000)
    yield produce_request("Produce v7 request, 1 x 170 B", 7, 1, 170)
    yield produce_request("Produce v9 request, 1 x 170 B", 9, 1, 170)
    yield produce_request("Produce v9 request, 6 x 16 KB", 9, 6, 16 << 10)
    yield produce_request("Produce v9 request, 6 x 1 MB", 9, 6, 1 << 20)
    yield produce_response("Produce v7 response, 1", 7, 1)
    yield produce_response("Produce v9 response, 1", 9, 1)
    yield produce_response("Produce v9 response, 6", 9, 6)
    yield fetch_response("Fetch v12 response, 1 x 16 KB", 12, 1, 16 << 10)
    yield fetch_response("Fetch v12 response, 6 x 16 KB", 12, 6, 16 << 10)
    yield fetch_response("Fetch v12 response, 6 x 1 MB", 12, 6, 1 << 20)
    yield metadata_response("Metadata v9 response, 100 x 6", 9)
    yield metadata_response("Metadata v12 response, 100 x 6", 12)


def round_us(work: Callable[[], object]) -> float:
    """CPU microseconds per call over one round."""
    calls, spent = 0, 0.0
    while spent < ROUND_SECONDS:
        started = time.process_time()
        for _ in range(10):
            work()
        spent += time.process_time() - started
        calls += 10
    return spent / calls * 1e6


def best_us(*works: Callable[[], object]) -> list[float]:
    best = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for at, work in enumerate(works):
            best[at] = min(best[at], round_us(work))
    return best


def measured(case: Case) -> list[float]:
    """Decode ours and kio's, encode to parts, to bytes, and kio's."""
    message, version, theirs = case.message, case.version, case.kio
    cls, write, read = type(message), entity_writer(type(theirs)), entity_reader(type(theirs))
    out = BytesIO()
    write(out, theirs)
    wire = out.getvalue()
    if encode(message, version) != wire:
        raise SystemExit(f"{case.name}: the codecs disagree")
    frame = bytearray(wire)
    return best_us(
        lambda: decode(cls, version, frame),
        lambda: read(wire, 0),
        lambda: encode_parts(message, version),
        lambda: encode(message, version),
        lambda: write(BytesIO(), theirs),
    )


def main() -> None:
    print("| case (us per message) | decode | kio | ratio | encode to parts | to bytes | kio | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for case in cases():
        ours, theirs, parts, joined, written = measured(case)
        print(
            f"| {case.name} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f}"
            f" | {parts:.2f} | {joined:.2f} | {written:.2f} | {parts / written:.2f} |"
        )


if __name__ == "__main__":
    main()
