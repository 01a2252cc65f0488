"""How fast a log is compacted, and what that does to the loop: `python -m bench.compaction [MEGABYTES]`.

A log of records with keys is written, as large as told, and compacted in one round: in the thread that asks, in a
thread beside a loop, and in a process beside it. While it runs, the loop wakes up every millisecond and notes how late
it is; a broker answers so much later.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from headrace.runtime import Apart, BesideLoop
from headrace.storage.cleanable import dirt_of
from headrace.storage.cleaning import Rewritten, Step, Worked, clean
from headrace.storage.log import Log
from headrace.storage.log_cleaning import LogCleaning
from headrace.storage.log_config import NEVER, LogConfig
from headrace.storage.opening import open_log
from headrace.storage.os_files import OsFiles
from headrace.storage.shared import Shared
from headrace.system import ProcessApart
from headrace.wire.batch import NewRecord, build, place, read_header
from headrace.wire.compression import Codec

TOPIC_ID = bytes(range(16))
BATCH_BYTES = 64 << 10
SEGMENT_BYTES = 64 << 20
KEYS_MAX = 750_000
TICK_S = 0.001


def filled(directory: Path, megabytes: int, value_bytes: int, keys: int, codec: Codec) -> Log:
    chance = random.Random(1)
    config = LogConfig(segment_bytes=SEGMENT_BYTES, is_compacted=True)
    log = open_log(Shared(OsFiles(50)), str(directory / "t-0"), TOPIC_ID, config)
    value = bytes(chance.getrandbits(5) for _ in range(value_bytes))
    per_batch = max(1, BATCH_BYTES // (value_bytes + 20))
    written = 0
    while written < megabytes << 20:
        records = [NewRecord(0, b"key-%09d" % chance.randrange(keys), value) for _ in range(per_batch)]
        raw = build(records, codec=codec)
        place(raw, 0, log.log_end_offset, 0)
        log.append([(raw, read_header(raw))], 0)
        written += len(raw)
    log._roll(log.log_end_offset, 0)
    job = log.flush_job()
    job.run()
    log.flushed(job)
    return log


class Lateness:
    """How late a loop is, tick by tick."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []

    async def watch(self) -> None:
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            self.late_ms.append((time.perf_counter() - due) * 1000)

    def text(self) -> str:
        late = sorted(self.late_ms)
        return ", ".join(
            f"{name} {late[int(len(late) * share)]:.2f} ms" for name, share in (("p50", 0.5), ("p99", 0.99))
        ) + (f", worst {late[-1]:.2f} ms")


async def compacted(log: Log, apart: Apart) -> tuple[int, int, float, Lateness]:
    """Bytes read, bytes left, seconds, and how late the loop was."""
    loop, lane, lateness = asyncio.get_running_loop(), ThreadPoolExecutor(1), Lateness()
    dirt = dirt_of(log, NEVER, 0, 0, NEVER)
    cleaning = LogCleaning(log, dirt, 0, delete_retention_ms=0, keys_max=KEYS_MAX, chunk_bytes=512 << 10)
    steps: Iterator[Step] = apart.begin(partial(clean, log.shared.files.apart(), cleaning.plan))
    watching = loop.create_task(lateness.watch())
    began, read = time.perf_counter(), 0
    while (step := await loop.run_in_executor(lane, lambda: next(steps, None))) is not None:
        if isinstance(step, Worked):
            read += step.bytes_read
        elif isinstance(step, Rewritten):
            cleaning.begin_swap(step)
            while cleaning.is_swapping:
                await loop.run_in_executor(lane, cleaning.sync)
                cleaning.move()
    took_s = time.perf_counter() - began
    watching.cancel()
    cleaning.finished(log.log_end_offset)
    apart.rest()
    return read, log.size_bytes, took_s, lateness


async def idle(seconds: float) -> Lateness:
    lateness = Lateness()
    watching = asyncio.get_running_loop().create_task(lateness.watch())
    await asyncio.sleep(seconds)
    watching.cancel()
    return lateness


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"a loop with nothing beside it: {asyncio.run(idle(2)).text()}")
    for value_bytes, keys, codec in (
        (100, 100_000, Codec.NONE),
        (100, 100_000, Codec.LZ4),
        (1_000, 20_000, Codec.NONE),
        (1_000, 200_000_000, Codec.NONE),
    ):
        for name, apart in (("thread", BesideLoop()), ("process", ProcessApart())):
            with tempfile.TemporaryDirectory() as directory:
                log = filled(Path(directory), megabytes, value_bytes, keys, codec)
                size, records = log.size_bytes, log.log_end_offset
                _, left, took_s, lateness = asyncio.run(compacted(log, apart))
                log.abandon()
            print(
                f"{value_bytes} bytes, {keys} keys, {codec.name.lower()}, {name}: "
                f"{size / took_s / 1e6:.0f} MB/s, {records / took_s / 1e3:.0f} thousand records/s, "
                f"{100 * left / size:.0f} % left; loop late by {lateness.text()}",
                flush=True,
            )


if __name__ == "__main__":
    main()
