"""A large group that forms, and offsets that are committed as fast as a broker takes them."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import Consumer

from bench.raw import RawClient
from headrace.wire.frames import decode_response, encode_request
from headrace.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.servers.process import BrokerProcess

MEMBERS = 50
JOIN_S_MAX = 120.0
CONNECTIONS, IN_FLIGHT = 4, 32
COMMIT_VERSION = 8
TOPIC = "groups"


class Joined(NamedTuple):
    seconds: float
    cpu_s: float


class Committed(NamedTuple):
    per_second: float
    cpu_us: float


def prepare(broker: BrokerProcess) -> None:
    """Also makes the internal topic, by a group of one member."""
    with RawClient(broker.port) as client:
        client.create_topic(TOPIC, MEMBERS)
    join(broker, "warm-up", 1)


def join(broker: BrokerProcess, group: str, members: int = MEMBERS) -> Joined:
    """From the first subscription until every member has its share; stock consumers with their default settings."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 2}
    consumers = [Consumer(settings) for _ in range(members)]
    held: list[frozenset[int]] = [frozenset()] * members
    ending = threading.Event()

    def read(at: int, consumer: Consumer) -> None:
        consumer.subscribe([TOPIC])
        while not ending.is_set():
            consumer.poll(0.05)
            held[at] = frozenset(partition.partition for partition in consumer.assignment())
        consumer.close()

    threads = [threading.Thread(target=read, args=each, daemon=True) for each in enumerate(consumers)]
    cpu_s, began = broker.cpu_s(), time.monotonic()
    for thread in threads:
        thread.start()
    _wait_until(lambda: _is_shared(held, MEMBERS // members), f"{members} members have their share")
    joined = Joined(time.monotonic() - began, broker.cpu_s() - cpu_s)
    ending.set()
    for thread in threads:
        thread.join()
    return joined


def _is_shared(held: list[frozenset[int]], share: int) -> bool:
    return all(len(partitions) == share for partitions in held) and len(frozenset().union(*held)) == MEMBERS


def commit(broker: BrokerProcess, group: str, seconds: float) -> Committed:
    """Of one partition each, by four connections with 32 requests in flight, outside of a group's membership."""
    requests = [_commit_request(group, number) for number in range(IN_FLIGHT)]
    counts: list[int] = [0] * CONNECTIONS
    cpu_s, began = broker.cpu_s(), time.monotonic()
    ends_s = began + seconds
    threads = [
        threading.Thread(target=_commit_on, args=(broker.port, requests, ends_s, counts, at))
        for at in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = sum(counts)
    assert count, "no commit was answered"
    return Committed(count / (time.monotonic() - began), (broker.cpu_s() - cpu_s) / count * 1e6)


def _commit_request(group: str, number: int) -> bytes:
    place = OffsetCommitRequestPartition(partition_index=number, committed_offset=number, committed_metadata="")
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[place])])
    return b"".join(encode_request(request, COMMIT_VERSION, number, "bench"))


def _commit_on(port: int, requests: list[bytes], ends_s: float, counts: list[int], at: int) -> None:
    """Always as many in flight as there are requests; every answer is looked into."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, connection.makefile("rb") as answers:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"".join(requests))
        in_flight = len(requests)
        while in_flight:
            (size,) = struct.unpack(">i", answers.read(4))
            number, answer = decode_response(OffsetCommitResponse, COMMIT_VERSION, answers.read(size))
            error = answer.topics[0].partitions[0].error_code
            assert not error, f"a commit was refused with {error}"
            in_flight -= 1
            counts[at] += 1
            if time.monotonic() < ends_s:
                connection.sendall(requests[number])
                in_flight += 1


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + JOIN_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {JOIN_S_MAX:.0f} s: {what}")
        time.sleep(0.005)
