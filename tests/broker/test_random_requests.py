"""Requests of every kind and version that are well-formed and mean nothing, or too much: all are answered or closed.

That none of them makes a traceback is what `World` looks for after every test.
"""

import random
from typing import Any

import pytest

from headrace.wire.apis import APIS, Api
from headrace.wire.compiler import decode
from headrace.wire.frames import decode_response, encode_request
from headrace.wire.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from headrace.wire.messages.fetch import FetchRequest
from headrace.wire.messages.topics import CreatePartitionsRequest, CreateTopicsRequest
from headrace.wire.struct import Message, Struct
from tests.broker.support import NOW_MS, TOPIC, Served, numbered, records_of, serving
from tests.wire.oracle import OWN_KEYS, kio_bytes, kio_class, random_entity

NAMES = [TOPIC, TOPIC, "other", "", "..", "no such topic", "1", "segment.bytes", "x" * 300]
SMALL = [-1, 0, 1, 2, 3, 7]
REQUESTS_PER_VERSION = 6


def made_meaningful(chance: random.Random, value: Any, topic_id: bytes) -> Any:
    """Random names never hit a topic, and random numbers never an offset: mostly put in ones that do."""
    if isinstance(value, Struct):
        for spec in value.__fields__:
            setattr(value, spec.name, made_meaningful(chance, getattr(value, spec.name), topic_id))
    elif isinstance(value, list):
        return [made_meaningful(chance, item, topic_id) for item in value]
    elif isinstance(value, memoryview):
        batches = [records_of(), numbered((chance.choice(SMALL), 0, 0), 2), bytearray(value)]
        return chance.choice(batches)
    elif isinstance(value, str) and chance.random() < 0.8:
        return chance.choice(NAMES)
    elif isinstance(value, bytes) and len(value) == 16 and chance.random() < 0.7:
        return topic_id
    elif isinstance(value, int) and not isinstance(value, bool) and chance.random() < 0.7:
        return chance.choice(SMALL)
    return value


def harmless(request: Message) -> Message:
    """Without what would only take long."""
    if isinstance(request, FetchRequest):
        request.max_wait_ms = min(request.max_wait_ms, 3)
    if isinstance(request, CreateTopicsRequest):
        for topic in request.topics:
            topic.num_partitions = min(topic.num_partitions, 20)
    if isinstance(request, CreatePartitionsRequest):
        for growth in request.topics:
            growth.count = min(growth.count, 20)
    if isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest):
        request.validate_only = True
    return request


async def answered_or_closed(served: Served, api: Api, version: int, request: Message) -> bool:
    """Whether there was an answer that can be read."""
    raw = await served.raw()
    raw.send(encode_request(request, version, 5, "chance"))
    if getattr(request, "acks", 1) == 0:
        raw.send(encode_request(APIS[18].request(), 0, 5, None))
        api, version = APIS[18], 0
    try:
        frame = await raw.frame_or_end()
        if frame is None:
            return False
        correlation_id, _ = decode_response(api.response, version, frame)
        assert correlation_id == 5
        return True
    finally:
        raw.close()


@pytest.mark.parametrize("key", sorted(APIS.keys() - set(OWN_KEYS)))
async def test_whatever_is_asked_is_answered_or_closed_and_the_node_goes_on(key: int) -> None:
    api = APIS[key]
    chance = random.Random(key)
    async with serving({"num.partitions": "2"}, partitions=3) as (served, client):
        await client.produce(records_of([b"a", b"b"], timestamps=[NOW_MS, NOW_MS + 1]))
        broker = served.node.broker
        assert broker is not None
        answered = asked = 0
        for version in api.versions:
            for _ in range(REQUESTS_PER_VERSION):
                topic = broker.image.topics.get(TOPIC)
                entity = random_entity(chance, kio_class(api.request, version), items_max=6)
                request = decode(api.request, version, bytearray(kio_bytes(entity)))
                made_meaningful(chance, request, topic.id if topic is not None else bytes(16))
                answered += await answered_or_closed(served, api, version, harmless(request))
                asked += 1
        assert answered > 0.8 * asked
        assert (await served.page("/readyz"))[0] == 200
        await client.create_topic("at-the-end")
        assert (await client.produce(topic="at-the-end")).error_code == 0
