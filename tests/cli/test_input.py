import asyncio
import os
import threading
from collections.abc import Iterator
from io import FileIO
from typing import NamedTuple

import pytest

from headrace.cli.input import THREAD, make_up, read_lines
from headrace.cli.outcome import Failure
from headrace.cli.records import Format, Written, reader


class Pipe(NamedTuple):
    out: FileIO
    into: FileIO


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    out, into = os.pipe()
    with FileIO(out, "r") as reading:
        with FileIO(into, "w") as writing:
            yield Pipe(reading, writing)
        # Who still reads is at the end now, and must not go on with the next test's pipe under the same number.
        for thread in threading.enumerate():
            if thread.name == THREAD:
                thread.join(30)


async def values(fd: int) -> list[bytes | None]:
    return [record.value async for chunk in read_lines(fd, reader(Format.VALUE, b"\t")) for record in chunk]


async def test_lines_end_with_newlines_and_the_last_one_need_not(pipe: Pipe) -> None:
    pipe.into.write(b"one\r\n\ntwo\nthree")
    pipe.into.close()
    assert await values(pipe.out.fileno()) == [b"one", b"", b"two", b"three"]


async def test_nothing_is_no_record(pipe: Pipe) -> None:
    pipe.into.close()
    assert await values(pipe.out.fileno()) == []


async def test_more_than_is_read_ahead_arrives_whole(pipe: Pipe) -> None:
    lines = [b"%d" % number * 20 for number in range(50_000)]

    def write() -> None:
        with open(pipe.into.fileno(), "wb", closefd=False) as into:
            into.write(b"\n".join(lines))
        pipe.into.close()

    written = asyncio.create_task(asyncio.to_thread(write))
    assert await values(pipe.out.fileno()) == lines
    await written


async def test_a_line_is_given_before_the_next_one_is_typed(pipe: Pipe) -> None:
    chunks = read_lines(pipe.out.fileno(), reader(Format.VALUE, b"\t"))
    pipe.into.write(b"first\n")
    assert await asyncio.wait_for(anext(chunks), 30) == [Written(None, b"first")]
    pipe.into.write(b"second\n")
    assert await asyncio.wait_for(anext(chunks), 30) == [Written(None, b"second")]


async def test_a_bad_line_is_named_by_its_number(pipe: Pipe) -> None:
    pipe.into.write(b"a\tb\nc\n")
    pipe.into.close()
    with pytest.raises(Failure, match="line 2: there is no"):
        async for _ in read_lines(pipe.out.fileno(), reader(Format.KEY_VALUE, b"\t")):
            pass


async def test_what_cannot_be_read_is_an_os_error(pipe: Pipe) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        await values(pipe.into.fileno())


async def test_made_up_values_are_numbered_and_of_one_size() -> None:
    made = [record.value async for chunk in make_up(1_203, 10, None) for record in chunk]
    assert len(made) == 1_203
    assert {len(value or b"") for value in made} == {10}
    assert made[0] is not None and made[0].startswith(b"0 ")
    assert made[1_202] is not None and made[1_202].startswith(b"1202 ")


async def test_a_rate_is_kept() -> None:
    clock = asyncio.get_running_loop().time
    begun = clock()
    made = [record async for chunk in make_up(20, 5, rate=100.0) for record in chunk]
    assert len(made) == 20
    assert clock() - begun >= 0.18
