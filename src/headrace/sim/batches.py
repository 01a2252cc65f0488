"""The batches of a simulated query: which rows each has, whoever writes them, and how a row says who wrote it."""

from typing import NamedTuple

TOPIC = "b"
TASKS_MAX = 3


class Row(NamedTuple):
    batch_id: int
    task: int
    number: int


def rows_of(batch_id: int) -> list[list[Row]]:
    """By tasks. There are tasks without rows, and batches without rows."""
    tasks = 1 + batch_id % TASKS_MAX
    return [[Row(batch_id, task, number) for number in range((batch_id + task) % 3)] for task in range(tasks)]


def value_of(row: Row, attempt: str) -> bytes:
    return f"{row.batch_id}.{row.task}.{row.number} {attempt}".encode()


def row_of(value: bytes) -> Row:
    batch_id, task, number = value.split(b" ")[0].split(b".")
    return Row(int(batch_id), int(task), int(number))
