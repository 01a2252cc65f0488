"""`headrace consume`: records of a topic, as lines."""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from headrace.cli import output
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.options import Bootstrap
from headrace.cli.outcome import Failure, UsageError
from headrace.cli.progress import Bar
from headrace.cli.records import Format, Read, writer
from headrace.cli.values import AtOffset, AtTime, Beginning, End, Start, parse_separator, parse_start
from headrace.cli.watch import administrator, watched
from headrace.client import Consumer
from headrace.model import TopicPartition

POLL_MS = 500
POLL_RECORDS = 5_000

Offsets = dict[TopicPartition, int]


def consume(
    topic: Annotated[str, Parameter(help="The topic to read.")],
    /,
    *,
    start: Annotated[
        str,
        Parameter(
            name="--from",
            metavar="WHERE",
            allow_leading_hyphen=True,
            help="beginning, end, an offset, or a time: ISO 8601 (local unless it has a zone) or ago, such as -5m.",
        ),
    ] = "beginning",
    count: Annotated[int | None, Parameter(help="Stop after so many records.")] = None,
    form: Annotated[
        Format, Parameter(name="--format", help="What a line is: the value, key and value, or all in JSON.")
    ] = Format.VALUE,
    key_separator: Annotated[str, Parameter(help="What stands between key and value.")] = "\\t",
    follow: Annotated[
        bool, Parameter(negative=(), show_default=False, help="At the end, wait for more, until Ctrl-C.")
    ] = False,
    partition: Annotated[
        tuple[int, ...],
        Parameter(negative=(), show_default=False, help="Read this partition only; may be given several times."),
    ] = (),
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Annotated[bool, Parameter(negative=(), show_default=False, help="The same as --format json.")] = False,
) -> None:
    if count is not None and count < 0:
        raise UsageError(f"--count is not negative, as {count} is")
    where = parse_start(start, int(time.time() * 1000))
    line = writer(Format.JSON if json else form, parse_separator(key_separator))
    try:
        asyncio.run(_consume(bootstrap, topic, partition, where, Reading(line, count, follow)))
    except KeyboardInterrupt:
        if not follow:
            raise  # A follower is meant to end so.


@dataclass(frozen=True, slots=True)
class Reading:
    """What to do with records, and when it is enough."""

    line: Callable[[Read], bytes]
    count_max: int | None
    follow: bool


async def _consume(bootstrap: str, topic: str, wanted: Sequence[int], where: Start, reading: Reading) -> None:
    async with administrator(bootstrap) as admin:
        (described,) = await admin.describe_topics([topic])
    there = [partition.partition for partition in described.partitions]
    for absent in sorted(set(wanted) - set(there)):
        raise Failure(f"topic {topic!r} has {len(there)} partitions; there is no partition {absent}")
    partitions = [TopicPartition(topic, partition) for partition in sorted(set(wanted or there))]
    async with Consumer(bootstrap) as consumer, watched(consumer, f"reading {topic}"):
        ends = await consumer.end_offsets(partitions)
        starts = await _starts(consumer, partitions, where, ends)
        consumer.assign(partitions)
        for partition, offset in starts.items():
            consumer.seek(partition, offset)
        await _read(consumer, starts, ends, reading)


async def _starts(consumer: Consumer, partitions: Sequence[TopicPartition], where: Start, ends: Offsets) -> Offsets:
    match where:
        case End():
            return dict(ends)
        case AtTime(timestamp_ms):
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
            return {p: at.offset if (at := found.get(p)) else ends[p] for p in partitions}
        case Beginning():
            return await consumer.beginning_offsets(partitions)
        case AtOffset(offset):
            first = await consumer.beginning_offsets(partitions)
            near = {p: min(max(offset, first[p]), ends[p]) for p in partitions}
            if strays := [p.partition for p in partitions if near[p] != offset]:
                output.say(f"headrace: offset {offset} is not in partition {strays}; the nearest is taken there")
            return near


async def _read(consumer: Consumer, starts: Offsets, ends: Offsets, reading: Reading) -> None:
    """To the ends, or for ever when it follows."""
    left = {partition for partition, end in ends.items() if starts[partition] < end}
    total = None if reading.follow else sum(ends[partition] - starts[partition] for partition in left)
    done = 0
    with Bar("reading", total, wanted=not sys.stdout.isatty()) as bar:
        while (reading.follow or left) and done != reading.count_max:
            records = await consumer.poll(POLL_MS, POLL_RECORDS)
            if not reading.follow:
                records = [
                    record for record in records if record.offset < ends[TopicPartition(record.topic, record.partition)]
                ]
            if reading.count_max is not None:
                records = records[: reading.count_max - done]
            output.write(b"".join([reading.line(Read(*record)) for record in records]))
            output.flush()
            done += len(records)
            bar.show(done)
            if not reading.follow:
                read = [partition for partition in left if await consumer.position(partition) >= ends[partition]]
                consumer.pause(read)
                left.difference_update(read)
