"""`headrace produce`: lines, or made-up data, into a topic."""

import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from headrace.cli import output
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.input import make_up, read_lines
from headrace.cli.options import Bootstrap, Json
from headrace.cli.outcome import UsageError
from headrace.cli.progress import Bar
from headrace.cli.records import Format, Written, reader
from headrace.cli.values import parse_separator, parse_size
from headrace.cli.watch import watched
from headrace.client import Producer, RecordMetadata

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Acks = Literal["0", "1", "all"]

ACKS: dict[Acks, int | Literal["all"]] = {"0": 0, "1": 1, "all": "all"}


def produce(
    topic: Annotated[str, Parameter(help="The topic to write to.")],
    file: Annotated[Path | None, Parameter(help="Lines to write; without it, standard input.")] = None,
    /,
    *,
    form: Annotated[
        Format,
        Parameter(name="--format", help="What a line is: a value, a key and a value, or what consume writes as JSON."),
    ] = Format.VALUE,
    key_separator: Annotated[
        str | None,
        Parameter(help="What stands between key and value; a tab if not said. Implies --format key-value."),
    ] = None,
    count: Annotated[int | None, Parameter(help="Make up so many records instead of reading any.")] = None,
    size: Annotated[str, Parameter(metavar="BYTES", help="The size of a made-up value: 100, 64k, 1MB.")] = "100",
    rate: Annotated[float | None, Parameter(help="Make up at most so many records a second.")] = None,
    partition: Annotated[int | None, Parameter(help="Write to this partition, whatever the keys.")] = None,
    compression: Annotated[Compression, Parameter(help="How batches are compressed.")] = "none",
    acks: Annotated[Acks, Parameter(help="Whose acknowledgement is waited for: nobody's, the leader's, all.")] = "all",
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    if key_separator is not None:
        if form is Format.JSON:
            raise UsageError("--key-separator means nothing with --format json")
        form = Format.KEY_VALUE
    if count is None and rate is not None:
        raise UsageError("--rate is for made-up records: it needs --count")
    if count is not None and file is not None:
        raise UsageError("give a file, or --count to make records up, not both")
    if (count or 0) < 0 or (rate is not None and not 0 < rate < math.inf):
        raise UsageError("--count and --rate are positive")
    parse = reader(form, parse_separator("\t" if key_separator is None else key_separator))
    size_bytes = parse_size(size, "--size")
    begun = time.monotonic()
    with _input(file) as fd, Bar(f"writing to {topic}", count, wanted=not _is_typed(file, count)) as bar:
        tally = Tally(bar)
        chunks = read_lines(fd, parse) if count is None else make_up(count, size_bytes, rate)
        producer = Producer(bootstrap, acks=ACKS[acks], compression=compression)
        asyncio.run(_send_all(producer, topic, partition, chunks, tally))
    seconds = time.monotonic() - begun
    if json:
        output.document(
            {"topic": topic, "records": tally.done, "bytes": tally.bytes, "seconds": round(seconds, 3), "acks": acks}
        )
    else:
        records = "1 record" if tally.done == 1 else f"{tally.done} records"
        output.say(f"{records}, {tally.bytes} bytes, in {seconds:.1f} s")


class Tally:
    """What became of the records so far."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self.done = 0
        self.bytes = 0
        self.failure: BaseException | None = None

    def settle(self, sent: "asyncio.Future[RecordMetadata]") -> None:
        failure = None if sent.cancelled() else sent.exception()
        if failure is None:
            self.done += 1
            self._bar.show(self.done)
        elif self.failure is None:
            self.failure = failure

    def raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


async def _send_all(
    producer: Producer, topic: str, partition: int | None, chunks: AsyncIterator[list[Written]], tally: Tally
) -> None:
    async with producer, watched(producer, f"writing to {topic}"):
        await producer.partitions_of(topic)  # A cluster that is not there is found out before a line is typed.
        async for chunk in chunks:
            for record in chunk:
                await producer.ready()
                sent = producer.send(topic, record.value, record.key, partition=partition, headers=record.headers)
                sent.add_done_callback(tally.settle)
                tally.bytes += len(record.key or b"") + len(record.value or b"")
            tally.raise_failure()
        await producer.flush()
    tally.raise_failure()


def _is_typed(file: Path | None, count: int | None) -> bool:
    return file is None and count is None and sys.stdin.isatty()


@contextmanager
def _input(file: Path | None) -> Iterator[int]:
    if file is None:
        yield sys.stdin.fileno()
        return
    with open(file, "rb", buffering=0) as opened:
        yield opened.fileno()
