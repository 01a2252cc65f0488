"""A driver of a query, with its tasks: python -m tests.cluster.batch_driver BOOTSTRAP RUN CHECKPOINT BATCHES.

Batch after batch, behind the last one that the checkpoint knows of: whoever is killed before that is written down does
the batch again. It ends well when all batches are there.
"""

import asyncio
import os
import sys
from pathlib import Path

from headrace.client import BatchRefused, CommitGroups, Fenced, Handle, Producer, TransactionFailed
from headrace.client.commit_group import transactional_id
from headrace.errors import KafkaError
from headrace.sim.batches import TOPIC, Row, rows_of, value_of

SCOPE, QUERY = "jobs", "0f3c"
PARTITIONS = 3
TIMEOUT_MS = 600_000
"""Of attempts: longer than the test. Whoever is read past them was not held up by those of the dead."""


def last_of(checkpoint: Path) -> int:
    """The last batch that is written down; -1: none. A line is written at once or not at all."""
    return max((int(line.split()[0]) for line in checkpoint.read_text().splitlines()), default=-1)


def write_down(checkpoint: Path, batch_id: int, run: str, already: bool) -> None:
    file = os.open(checkpoint, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{batch_id} {run} {'again' if already else 'first'}\n".encode())
    finally:
        os.close(file)


async def attempt(bootstrap: str, run: str, rows: list[Row], number: int) -> Handle | None:
    if not rows:
        return None
    name = transactional_id(SCOPE, QUERY, rows[0].batch_id, rows[0].task, run, number)
    async with Producer(
        bootstrap, transactional_id=name, transaction_timeout_ms=TIMEOUT_MS, delivery_ms_max=60_000
    ) as producer:
        await producer.begin()
        for row in rows:
            producer.send(TOPIC, value_of(row, f"{run}#{number}"), partition=sum(row) % PARTITIONS)
        return await producer.handle()


async def write(bootstrap: str, run: str, batch_id: int, attempts: int, groups: CommitGroups) -> bool:
    """Whether the batch was committed before."""
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(attempt(bootstrap, run, rows, attempts + task))
            for task, rows in enumerate(rows_of(batch_id))
        ]
    handles = [handle for one in running if (handle := one.result()) is not None]
    return (await groups.commit(SCOPE, QUERY, batch_id, run, handles)).already


async def drive(bootstrap: str, run: str, checkpoint: Path, batches: int) -> None:
    attempts = 0
    refused = False
    async with CommitGroups(bootstrap, timeout_ms=60_000) as groups:
        while (batch_id := last_of(checkpoint) + 1) < batches:
            attempts += len(rows_of(batch_id))
            try:
                # Who committed the batch that was refused may be paused before it wrote that down.
                is_there = refused and await groups.last_committed(SCOPE, QUERY) >= batch_id
                refused = False
                already = is_there or await write(bootstrap, run, batch_id, attempts, groups)
            except* (Fenced, BatchRefused, TransactionFailed) as failed:
                # Another driver was faster.
                refused = True
                print(f"{run}: batch {batch_id} again: {failed.exceptions[0]}", flush=True)
            except* KafkaError as failed:
                print(f"{run}: batch {batch_id} failed: {failed.exceptions[0]}", flush=True)
            else:
                write_down(checkpoint, batch_id, run, already)


if __name__ == "__main__":
    _, bootstrap, run, checkpoint, batches = sys.argv
    asyncio.run(drive(bootstrap, run, Path(checkpoint), int(batches)))
