"""Incremental fetch sessions over the wire, on a whole node. Their rules are tested in tests/core."""

import asyncio
from typing import Any

from headrace.errors import ErrorCode
from headrace.wire.messages.fetch import FetchResponse, FetchTopic, ForgottenTopic
from tests.broker.support import TOPIC, Client, Served, records_of, serving, until, values_of
from tests.broker.test_fetch import LONG_MS, ask, asking, at, fetch, parked, topic_id_of

BY_NAME, BY_ID = 12, 17


class Session:
    """A client's side of it."""

    def __init__(self, client: Client, session_id: int, version: int) -> None:
        self.client = client
        self.id = session_id
        self.epoch = 1
        self.version = version

    @classmethod
    async def open(cls, client: Client, served: Served, partitions: int, version: int = BY_NAME) -> "Session":
        wanted = asking(*(at(0, partition) for partition in range(partitions)), topic_id=topic_id_of(served))
        answer = await ask(client, fetch(wanted, session_epoch=0), version)
        assert answer.session_id != 0
        assert [part.partition_index for part in answer.responses[0].partitions] == list(range(partitions))
        return cls(client, answer.session_id, version)

    async def next(self, *topics: FetchTopic, **fields: Any) -> FetchResponse:
        epoch, self.epoch = self.epoch, self.epoch + 1
        request = fetch(*topics, session_id=self.id, session_epoch=epoch, **fields)
        return await ask(self.client, request, self.version)


def told(answer: FetchResponse) -> list[int]:
    return [part.partition_index for topic in answer.responses for part in topic.partitions]


async def test_only_news_are_sent() -> None:
    for version in (BY_NAME, BY_ID):
        async with serving(partitions=50) as (served, client):
            session = await Session.open(client, served, 50, version)
            assert told(await session.next()) == []
            await client.produce(records_of([b"a"]), 7)
            answer = await session.next()
            assert (answer.session_id, told(answer)) == (session.id, [7])
            assert values_of(answer.responses[0].partitions[0].records) == [b"a"]
            answer = await session.next(asking(at(1, 7), topic_id=topic_id_of(served)))
            assert told(answer) == []


async def test_an_idle_session_waits_and_visits_nothing() -> None:
    async with serving(partitions=50) as (served, client):
        broker = served.node.broker
        assert broker is not None
        session = await Session.open(await served.client(), served, 50)
        visited = broker.fetch_events.sessions.partitions_visited
        assert told(await session.next(max_wait_ms=20)) == []
        assert broker.fetch_events.sessions.partitions_visited == visited
        waiting = asyncio.ensure_future(session.next(max_wait_ms=LONG_MS))
        await until(lambda: parked(served) == 1)
        await client.produce(records_of([b"a"]), 49)
        assert told(await waiting) == [49]
        assert broker.fetch_events.sessions.partitions_visited == visited + 1


async def test_refusals_carry_no_session_and_no_partitions() -> None:
    async with serving() as (served, client):
        session = await Session.open(client, served, 1)
        refused = [
            (fetch(session_id=session.id + 1, session_epoch=1), BY_NAME, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (fetch(session_id=session.id, session_epoch=2), BY_NAME, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            (fetch(session_id=session.id, session_epoch=1), BY_ID, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        ]
        for request, version, error in refused:
            answer = await ask(client, request, version)
            assert (answer.error_code, answer.session_id, answer.responses) == (error, 0, [])
        assert (await session.next()).error_code == 0
        _, page = await served.page("/metrics")
        for code in (70, 71, 106):
            assert f'headrace_fetchsessionerrors_total{{code="{code}"}} 1' in page
        assert "kafka_server_fetchsessioncache_numincrementalfetchsessions 1" in page


async def test_a_session_outlives_its_connection_and_the_later_fetch_wins() -> None:
    async with serving() as (served, client):
        first, second = await served.client(), await served.client()
        session = await Session.open(first, served, 1)
        overtaken = asyncio.ensure_future(session.next(max_wait_ms=LONG_MS))
        await until(lambda: parked(served) == 1)
        session.client = second
        waiting = asyncio.ensure_future(session.next(max_wait_ms=LONG_MS))
        answer = await overtaken
        assert (answer.error_code, answer.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id)
        first.peer.close()
        await client.produce(records_of([b"a"]))
        assert told(await waiting) == [0]


async def test_a_topic_created_again_goes_on_under_its_new_id() -> None:
    """T227-12."""
    async with serving() as (served, client):
        old_id = topic_id_of(served)
        session = await Session.open(await served.client(), served, 1, BY_ID)
        await client.delete_topic()
        answer = await session.next(max_wait_ms=LONG_MS)
        assert [part.error_code for part in answer.responses[0].partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]
        new_id = await client.create_topic()
        await client.produce(records_of([b"new"]))
        answer = await session.next(
            asking(at(0), topic_id=new_id), forgotten_topics_data=[ForgottenTopic(topic_id=old_id, partitions=[0])]
        )
        (topic,) = answer.responses
        assert (topic.topic_id, values_of(topic.partitions[0].records)) == (new_id, [b"new"])


async def test_a_topic_named_before_it_exists_is_served_when_it_does() -> None:
    """T227-31."""
    async with serving() as (served, client):
        session = await Session.open(await served.client(), served, 1)
        answer = await session.next(asking(at(0), name="later"), max_wait_ms=20)
        assert [part.error_code for part in answer.responses[0].partitions] == [3]
        waiting = asyncio.ensure_future(session.next(max_wait_ms=LONG_MS))
        await until(lambda: parked(served) == 1)
        await client.create_topic("later")
        await client.produce(records_of([b"at last"]), topic="later")
        (topic,) = (await waiting).responses
        assert (topic.topic, values_of(topic.partitions[0].records)) == ("later", [b"at last"])


async def test_forgetting_and_closing() -> None:
    async with serving({"max.incremental.fetch.session.cache.slots": "2"}, partitions=2) as (served, client):
        broker = served.node.broker
        assert broker is not None
        cache = broker.fetch_events.sessions.cache
        forgetful, closing = [await Session.open(client, served, 2) for _ in range(2)]
        full = await ask(client, fetch(asking(at(0, 0)), session_epoch=0))
        assert (full.error_code, full.session_id, told(full)) == (0, 0, [0])
        forgotten = [ForgottenTopic(topic=TOPIC, partitions=[0, 1])]
        assert (await forgetful.next(forgotten_topics_data=forgotten)).session_id == 0
        assert len(cache) == 1
        closed = await ask(client, fetch(session_id=closing.id, session_epoch=-1))
        assert (closed.error_code, closed.session_id, len(cache), cache.partitions) == (0, 0, 0, 0)
