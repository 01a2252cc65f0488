"""The topic of dead letters, made on brokers of which some are away."""

import asyncio
from collections.abc import Iterator

import pytest

from headrace.client import Admin, NewTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.pipeline.dead_letter_topic import create_dead_letter_topic
from headrace.testing import Cluster


@pytest.fixture
def two_of_three() -> Iterator[Cluster]:
    """What clients see of three brokers, one of which is away."""
    with Cluster({"default.replication.factor": "3"}, brokers=2) as running:
        yield running


@pytest.fixture
def said() -> list[str]:
    return []


def test_there_are_fewer_copies_where_a_broker_is_away(two_of_three: Cluster, said: list[str]) -> None:
    asyncio.run(create_dead_letter_topic(two_of_three.bootstrap, "no-rows", said.append))
    assert copies(two_of_three, "no-rows") == 2
    assert len(said) == 1 and "topic no-rows for dead letters has 2 copies" in said[0]


def test_a_topic_that_is_there_is_left_as_it_is(two_of_three: Cluster, said: list[str]) -> None:
    asyncio.run(create(two_of_three, NewTopic("no-rows", replication_factor=1)))
    asyncio.run(create_dead_letter_topic(two_of_three.bootstrap, "no-rows", said.append))
    assert copies(two_of_three, "no-rows") == 1 and not said


def test_brokers_that_are_all_there_give_it_as_many_copies_as_any_topic(said: list[str]) -> None:
    with Cluster({"default.replication.factor": "2"}, brokers=3) as cluster:
        asyncio.run(create_dead_letter_topic(cluster.bootstrap, "no-rows", said.append))
        assert copies(cluster, "no-rows") == 2 and not said


def test_a_name_that_no_topic_can_have_is_told(two_of_three: Cluster, said: list[str]) -> None:
    with pytest.raises(KafkaError, match="no rows") as refused:
        asyncio.run(create_dead_letter_topic(two_of_three.bootstrap, "no rows", said.append))
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def create(cluster: Cluster, topic: NewTopic) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([topic])


def copies(cluster: Cluster, topic: str) -> int:
    async def described() -> int:
        async with Admin(cluster.bootstrap) as admin:
            (description,) = await admin.describe_topics([topic])
        return len(description.partitions[0].replicas)

    return asyncio.run(described())
