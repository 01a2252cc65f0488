"""The monitoring port, asked by sockets and by the standard library's own client."""

import asyncio
import http.client
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from headrace.net.http import CONNECTIONS_MAX, PLAIN, REQUEST_BYTES_MAX, HttpServer, Page
from headrace.net.transport import Address, LoopNetwork
from tests.net.loops import on_both_loops, until


def slices() -> Iterator[str]:
    for number in range(1000):
        yield f"series_{number} {number}\n"


def broken() -> Iterator[str]:
    yield "begun\n"
    raise KeyError("bug")


def pages(path: str) -> Page | None:
    if path == "/metrics":
        return Page(200, "text/plain; version=0.0.4", slices())
    if path == "/readyz":
        return Page(503, PLAIN, ["starting\n"])
    if path == "/broken":
        return Page(200, PLAIN, broken())
    return None


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[HttpServer, Address]]:
    server = HttpServer(asyncio.get_running_loop(), pages)
    address = await server.start(LoopNetwork(), "127.0.0.1", 0)
    try:
        yield server, address
    finally:
        server.close()
        await until(lambda: not server.connections)


def fetch(address: Address, method: str, *paths: str) -> list[tuple[int, str | None, bytes]]:
    connection = http.client.HTTPConnection(*address, timeout=30)
    try:
        answers = []
        for path in paths:
            connection.request(method, path)
            response = connection.getresponse()
            answers.append((response.status, response.getheader("Content-Type"), response.read()))
        return answers
    finally:
        connection.close()


async def raw(address: Address, data: bytes) -> bytes:
    """All that comes back until the server closes."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(data)
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@on_both_loops
async def test_pages_are_read_over_one_connection() -> None:
    async with serving() as (_, address):
        answers = await asyncio.to_thread(fetch, address, "GET", "/metrics?x=1", "/readyz", "/nothing")
    assert answers == [
        (200, "text/plain; version=0.0.4", "".join(slices()).encode()),
        (503, PLAIN, b"starting\n"),
        (404, PLAIN, b"There is no such page.\n"),
    ]


@on_both_loops
async def test_head_has_no_body_and_other_methods_are_refused() -> None:
    async with serving() as (_, address):
        assert await asyncio.to_thread(fetch, address, "HEAD", "/readyz", "/readyz") == [(503, PLAIN, b"")] * 2
        assert [status for status, *_ in await asyncio.to_thread(fetch, address, "POST", "/readyz")] == [405]


@on_both_loops
async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with serving() as (_, address):
        answer = await raw(
            address, b"GET /readyz HTTP/1.1\r\n\r\n" * 3 + b"GET /no HTTP/1.1\r\nConnection: close\r\n\r\n"
        )
    assert [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")] == [
        *[b"HTTP/1.1 503 Service Unavailable"] * 3,
        b"HTTP/1.1 404 Not Found",
    ]


@on_both_loops
async def test_an_old_client_gets_the_page_without_chunks_and_the_end_of_the_connection() -> None:
    async with serving() as (_, address):
        answer = await raw(address, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n" + "".join(slices()).encode())


@on_both_loops
async def test_bad_requests_are_refused_and_large_ones_cut_off() -> None:
    async with serving() as (_, address):
        for request, status in (
            (b"nonsense\r\n\r\n", b"400"),
            (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
            (b"GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"400"),
            (b"GET /" + b"x" * REQUEST_BYTES_MAX, b"431"),
        ):
            assert (await raw(address, request)).split(b" ")[1] == status
        assert (await raw(address, b"x" * 10 * REQUEST_BYTES_MAX))[:12] in (b"", b"HTTP/1.1 431")


async def test_a_page_that_fails_is_cut_and_the_next_one_works(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (_, address):
        assert b"0\r\n\r\n" not in await raw(address, b"GET /broken HTTP/1.1\r\n\r\n")
        assert "a page of the monitoring port failed" in caplog.text
        assert (await asyncio.to_thread(fetch, address, "GET", "/readyz"))[0][0] == 503


@on_both_loops
async def test_a_page_leaves_turns_of_the_loop_to_others() -> None:
    turns = 0
    async with serving() as (_, address):
        scrape = asyncio.ensure_future(raw(address, b"GET /metrics HTTP/1.0\r\n\r\n"))
        while not scrape.done():
            turns += 1
            await asyncio.sleep(0)
    assert turns > 500


@on_both_loops
async def test_connections_are_bounded() -> None:
    async with serving() as (server, address):
        idle = [await asyncio.open_connection(*address) for _ in range(CONNECTIONS_MAX)]
        await until(lambda: len(server.connections) == CONNECTIONS_MAX)
        assert await raw(address, b"GET /readyz HTTP/1.1\r\n\r\n") == b""
        for _, writer in idle:
            writer.close()
        await until(lambda: not server.connections)
        assert b"503" in await raw(address, b"GET /readyz HTTP/1.0\r\n\r\n")
