"""Requests whose answers are large take many turns of the loop, so that others are served in between."""

import asyncio

import pytest

from headrace.controller.topics import NewTopic
from headrace.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from headrace.wire.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from headrace.wire.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.struct import Message
from tests.broker.admin_bench import AdminBench

TOPICS, PARTITIONS = 20, 1_000
VERSION = 3


async def turns_for(bench: AdminBench, request: Message, response: type[Message]) -> int:
    """Turns of the loop that others had until the answer was there."""
    asked = asyncio.create_task(bench.ask(request, VERSION, response))
    turns = 0
    while not asked.done():
        turns += 1
        await asyncio.sleep(0)
    await asked
    return turns


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (MetadataRequest(topics=None), MetadataResponse),
        (DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse),
        (
            DescribeConfigsRequest(
                resources=[DescribeConfigsResource(resource_type=2, resource_name=f"t{n}") for n in range(TOPICS)] * 100
            ),
            DescribeConfigsResponse,
        ),
        (
            CreateTopicsRequest(
                topics=[CreatableTopic(name=f"new{n}", num_partitions=PARTITIONS) for n in range(TOPICS)],
                validate_only=True,
            ),
            CreateTopicsResponse,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_large_answer_leaves_turns_to_others(
    bench: AdminBench, monkeypatch: pytest.MonkeyPatch, request_: Message, response: type[Message]
) -> None:
    await bench.broker.controller.create_topics([NewTopic(f"t{n}", partitions=PARTITIONS) for n in range(TOPICS)])
    monkeypatch.setattr("headrace.controller.pacing.TURN_US", 1 << 60)
    in_one_go = await turns_for(bench, request_, response)
    monkeypatch.undo()
    monkeypatch.setattr("headrace.controller.pacing.TURN_US", 1_000)
    assert await turns_for(bench, request_, response) >= in_one_go + 4
