"""Which transactional ids are kept together.

The attempts of one Spark query end together, by one record: their ids have a form of their own, and all that begin
with the same scope and query belong to one coordinator. Every other id is placed by itself, as Kafka does.
"""

import re
from typing import Final, NamedTuple

ATTEMPT_PREFIX: Final = "hr1"
SCOPE_FORM: Final = "1 to 64 of the characters A-Z, a-z, 0-9, '.', '_' and '-'"
JOBS: Final = "headrace.jobs"
"""The scope of batch jobs. Each has an id that is made up for it, under which nobody comes again."""
PLACES: Final = "headrace.places"
"""The scope under which it is kept where the checkpoints of queries lie."""
NAME_CHARS_MAX: Final = 128
"""Of a query and of a run. Spark's own are UUIDs."""
_SCOPE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_PARTS: Final = 7
"""hr1:scope:query:batch:partition:run:attempt"""
_PLACED_BY: Final = 3


class Attempt(NamedTuple):
    """One try of one task at its part of a batch."""

    query: str
    """What the ids of all attempts of the query begin with."""
    batch_id: int


def placement_key(transactional_id: str) -> str:
    """What is hashed to find the coordinator."""
    parts = _parts(transactional_id)
    return transactional_id if parts is None else ":".join(parts[:_PLACED_BY])


def attempt_of(transactional_id: str) -> Attempt | None:
    """None for an ordinary id."""
    parts = _parts(transactional_id)
    if parts is None or not _NUMBER.fullmatch(parts[3]):
        return None
    return Attempt(":".join(parts[:_PLACED_BY]), int(parts[3]))


def query_key(scope: str, query_id: str) -> str:
    return f"{ATTEMPT_PREFIX}:{scope}:{query_id}"


def is_job(query: str) -> bool:
    """Of what the ids of its attempts begin with."""
    return query.startswith(f"{ATTEMPT_PREFIX}:{JOBS}:")


def is_place(query: str) -> bool:
    return query.startswith(f"{ATTEMPT_PREFIX}:{PLACES}:")


def is_scope(scope: str) -> bool:
    return _SCOPE.fullmatch(scope) is not None


def is_name(name: str) -> bool:
    """Of a query, or of a run."""
    return 0 < len(name) <= NAME_CHARS_MAX and ":" not in name


def attempt_id(scope: str, query_id: str, batch_id: int, partition: int, run_id: str, task_attempt_id: int) -> str:
    """ValueError when one of the parts cannot stand in it."""
    if not is_scope(scope):
        raise ValueError(f"a scope has {SCOPE_FORM}; {scope!r} has not")
    for name in (query_id, run_id):
        if not is_name(name):
            raise ValueError(
                f"a query or a run is named by 1 to {NAME_CHARS_MAX} characters, none of them ':'; not {name!r}"
            )
    if min(batch_id, partition, task_attempt_id) < 0:
        raise ValueError(f"batch {batch_id}, partition {partition} and attempt {task_attempt_id} are 0 or more")
    return f"{query_key(scope, query_id)}:{batch_id}:{partition}:{run_id}:{task_attempt_id}"


def _parts(transactional_id: str) -> list[str] | None:
    if not transactional_id.startswith(ATTEMPT_PREFIX):
        return None
    parts = transactional_id.split(":")
    if len(parts) != _PARTS or parts[0] != ATTEMPT_PREFIX or not _SCOPE.fullmatch(parts[1]):
        return None
    return parts
