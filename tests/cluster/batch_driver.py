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


async def drive(bootstrap: str, run: str, checkpoint: Path, batches: int) -> None:
    attempts = 0
    async with CommitGroups(bootstrap, timeout_ms=60_000) as groups:
        while (batch_id := last_of(checkpoint) + 1) < batches:
            tasks = rows_of(batch_id)
            attempts += len(tasks)
            try:
                async with asyncio.TaskGroup() as group:
                    running = [
                        group.create_task(attempt(bootstrap, run, rows, attempts + task))
                        for task, rows in enumerate(tasks)
                    ]
                handles = [handle for one in running if (handle := one.result()) is not None]
                decided = await groups.commit(SCOPE, QUERY, batch_id, run, handles)
            except* (Fenced, BatchRefused, TransactionFailed) as failed:
                # Another driver was faster.
                print(f"{run}: batch {batch_id} again: {failed.exceptions[0]}", flush=True)
            except* KafkaError as failed:
                print(f"{run}: batch {batch_id} failed: {failed.exceptions[0]}", flush=True)
            else:
                write_down(checkpoint, batch_id, run, decided.already)


if __name__ == "__main__":
    _, bootstrap, run, checkpoint, batches = sys.argv
    asyncio.run(drive(bootstrap, run, Path(checkpoint), int(batches)))
