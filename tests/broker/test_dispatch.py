"""From frames to handlers: versions, unknown requests, bugs, and requests that are slower than others."""

import asyncio
import logging
import struct
from typing import Any

import pytest

from headrace.broker import dispatch
from headrace.broker.broker import Broker
from headrace.broker.handlers import HANDLERS
from headrace.broker.requests import Request
from headrace.errors import ErrorCode
from headrace.wire.apis import APIS
from headrace.wire.frames import decode_response, encode_request
from headrace.wire.messages.fetch import FetchResponse
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from headrace.wire.messages.versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.support import Raw, fetch_request, serving, until
from tests.net.loops import on_both_loops


def header(api_key: int, version: int, correlation_id: int = 1, rest: bytes = b"") -> list[bytes]:
    body = struct.pack(">hhi", api_key, version, correlation_id) + rest
    return [struct.pack(">i", len(body)), body]


def test_every_advertised_api_has_a_handler_and_every_handler_an_api() -> None:
    assert set(HANDLERS) == set(APIS)


@pytest.mark.parametrize("version", range(5))
async def test_what_is_spoken_is_told_in_every_version(version: int) -> None:
    async with serving() as (served, _):
        raw = await served.raw()
        request = ApiVersionsRequest(client_software_name="me", client_software_version="1")
        raw.send(encode_request(request, version, 9, "me"))
        correlation_id, answer = decode_response(ApiVersionsResponse, version, await raw.frame())
        assert (correlation_id, answer.error_code) == (9, 0)
        told = {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
        assert told == {key: api.advertised for key, api in APIS.items() if api.advertised is not None}
        assert told[0] == range(14)
        raw.close()


@pytest.mark.parametrize("setting", ["own.enable", "own.advertise"])
async def test_ownership_is_not_told_of_where_it_is_switched_off_or_hidden(setting: str) -> None:
    async with serving({setting: "false"}) as (served, _):
        raw = await served.raw()
        raw.send(encode_request(ApiVersionsRequest(), 2, 9, "me"))
        _, answer = decode_response(ApiVersionsResponse, 2, await raw.frame())
        assert 18200 not in {api.api_key for api in answer.api_keys}
        raw.close()


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("me", ""), ("my client", "1"), ("me-", "1"), ("me", "é")])
async def test_a_client_that_names_its_software_badly_is_refused(name: str, version: str) -> None:
    async with serving() as (served, _):
        raw = await served.raw()
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        raw.send(encode_request(request, 3, 9, "me"))
        _, answer = decode_response(ApiVersionsResponse, 3, await raw.frame())
        assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])
        raw.send(encode_request(ApiVersionsRequest(), 2, 10, "me"))  # that is older than such names
        assert decode_response(ApiVersionsResponse, 2, await raw.frame())[1].error_code == 0
        raw.close()


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
async def test_a_client_newer_than_us_is_answered_in_version_0(version: int) -> None:
    async with serving() as (served, _):
        raw = await served.raw()
        raw.send(header(18, version, 77, b"whatever comes in years to come"))
        correlation_id, answer = decode_response(ApiVersionsResponse, 0, await raw.frame())
        assert (correlation_id, answer.error_code) == (77, ErrorCode.UNSUPPORTED_VERSION)
        (own,) = answer.api_keys
        assert (own.api_key, own.min_version, own.max_version) == (18, 0, 4)
        raw.send(encode_request(ApiVersionsRequest(), 0, 78, None))  # and may ask again
        assert decode_response(ApiVersionsResponse, 0, await raw.frame())[0] == 78
        raw.close()


@pytest.mark.parametrize(
    "frame",
    [
        header(9999, 0),
        header(-1, 0),
        header(1, 3),
        header(1, 99),
        header(2, 0),
        header(19, 99),
        header(3, -1),
        header(1, 12, rest=b"\xff\xff\x00nonsense"),
        header(0, 9, rest=b"\x00\x02"),
        header(3, 12, rest=b"\xff\xff\x00\x02\x00\x00\x00\x00"),
        header(18, 3, rest=b"\xff\xff\x00\x02a\x02b\x00trailing"),
        [struct.pack(">i", 3), b"abc"],
        [struct.pack(">i", 0)],
        [struct.pack(">i", -1)],
        [struct.pack(">i", 2**31 - 1)],
    ],
)
async def test_what_cannot_be_understood_closes_its_connection_and_no_other(
    frame: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as (served, client):
        with caplog.at_level(logging.WARNING, "headrace"):
            raw = await served.raw()
            raw.send(frame)
            assert await raw.is_closed()
            raw.close()
            assert len(caplog.records) == 1
        assert (await client.produce()).error_code == 0


@on_both_loops
async def test_answers_given_before_a_bad_frame_still_leave() -> None:
    async with serving() as (served, _):
        raw = await served.raw()
        raw.send([*encode_request(ApiVersionsRequest(), 0, 5, None), *header(9999, 0)])
        assert decode_response(ApiVersionsResponse, 0, await raw.frame())[0] == 5
        assert await raw.is_closed()
        raw.close()


def ask_for_new_topic(raw: Raw, name: str, correlation_id: int = 1) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    raw.send(encode_request(request, 9, correlation_id, None))


async def test_a_request_that_waits_for_the_store_holds_up_nobody_else() -> None:
    async with serving() as (served, client):
        served.world.offload.hold("metadata")
        slow = await served.raw()
        ask_for_new_topic(slow, "slow")
        await until(lambda: served.world.offload.held("metadata"))
        assert (await client.produce()).error_code == 0
        assert await client.offset() == 1
        answer = await client.ask(MetadataRequest(topics=None), MetadataResponse)
        assert len(answer.topics) == 1
        served.world.offload.release("metadata")
        _, answer = decode_response(MetadataResponse, 9, await slow.frame())
        assert answer.topics[0].error_code == 0
        slow.close()


async def test_answers_of_one_connection_wait_for_a_slow_one_before_them() -> None:
    async with serving() as (served, _):
        raw = await served.raw()
        served.world.offload.hold("metadata")
        ask_for_new_topic(raw, "slow", 1)
        raw.send(encode_request(ApiVersionsRequest(), 0, 2, None))
        await until(lambda: served.world.offload.held("metadata"))
        served.world.offload.release("metadata")
        assert decode_response(MetadataResponse, 9, await raw.frame())[0] == 1
        assert decode_response(ApiVersionsResponse, 0, await raw.frame())[0] == 2
        raw.close()


async def test_a_client_that_leaves_while_its_request_waits_does_no_harm() -> None:
    async with serving() as (served, client):
        raw = await served.raw()
        served.world.offload.hold("metadata")
        ask_for_new_topic(raw, "left")
        await until(lambda: served.world.offload.held("metadata"))
        raw.close()
        waiting = await served.raw()
        waiting.send(encode_request(fetch_request(0, max_wait_ms=60_000), 12, 1, None))
        broker = served.node.broker
        assert broker is not None
        await until(lambda: broker.fetch_events._waiting)
        waiting.close()
        await until(lambda: not broker.fetch_events._waiting)
        served.world.offload.release("metadata")
        await until(lambda: "left" in broker.image.topics)
        assert (await client.produce(topic="left")).error_code == 0


async def test_a_bug_in_a_slow_handler_costs_its_caller_the_connection_and_nobody_else_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(_: Broker, __: Request[Any]) -> MetadataResponse:
        raise KeyError("bug")

    async def unencodable(_: Broker, __: Request[Any]) -> MetadataResponse:
        return MetadataResponse(brokers=[MetadataResponseBroker(node_id=2**40, host="", port=0)], topics=[])

    for handler in (broken, unencodable):
        monkeypatch.setitem(HANDLERS, 60, handler)
        async with serving() as (served, client):
            raw = await served.raw()
            raw.send(encode_request(ApiVersionsRequest(), 0, 1, None))
            raw.send(header(60, 0, 2, b"\xff\xff\x00\x00\x00"))
            assert decode_response(ApiVersionsResponse, 0, await raw.frame())[0] == 1
            assert await raw.is_closed()
            raw.close()
            assert (await client.produce()).error_code == 0
            assert len(served.world.tracebacks.seen) == 1
            served.world.tracebacks.seen.clear()


async def test_slow_requests_wait_for_their_turn_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "SLOW_REQUESTS_MAX", 100)
    monkeypatch.setattr(dispatch, "SLOW_REQUESTS_DUE_MAX", 400)
    release = asyncio.Event()
    under_way = 0

    async def slow(_: Broker, __: Request[Any]) -> MetadataResponse:
        nonlocal under_way
        under_way += 1
        assert under_way <= 100
        await release.wait()
        under_way -= 1
        return MetadataResponse(brokers=[], topics=[])

    monkeypatch.setitem(HANDLERS, 60, slow)
    async with serving() as (served, client):
        connections = []
        for _ in range(3):
            raw = await served.raw()
            for _ in range(200):
                raw.send(header(60, 0, 1, b"\xff\xff\x00\x00\x00"))
            connections.append(raw)
        assert await connections[-1].is_closed()
        assert (await client.produce()).error_code == 0
        release.set()
        for _ in range(200):
            assert len(await connections[0].frame()) > 0
        for raw in connections:
            raw.close()


async def test_a_fetch_that_waits_does_not_hold_up_other_connections() -> None:
    async with serving() as (served, client):
        other = await served.client()
        waiting = other.peer.send(fetch_request(0, max_wait_ms=60_000), FetchResponse, 12)
        assert (await client.produce()).error_code == 0
        assert (await waiting).responses[0].partitions[0].high_watermark == 1
