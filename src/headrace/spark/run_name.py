"""What brokers keep with the last batch of a query: which run wrote it, where that ran, and which of its writes it was.

A run that comes to a batch which it has committed itself either lost the answer, and names the very same attempts
again, or writes a second time under one name. The second is a mistake of whoever wrote the query, and rows would be
lost without a word if the two could not be told apart.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from headrace.client.commit_group import Handle

HOST_CHARS_MAX = 64
_HASH_CHARS = 12


class RunName(NamedTuple):
    run_id: str
    host: str
    write: str = ""
    """Of a batch: told by the attempts that it named."""

    def __str__(self) -> str:
        return f"{self.run_id}@{self.host}/{self.write}"


def read_run_name(text: str) -> RunName:
    run_id, _, place = text.partition("@")
    host, _, write = place.partition("/")
    return RunName(run_id, host, write)


def host_name(name: str) -> str:
    """As it can stand in names that have parts."""
    return name.replace(":", "-").replace("/", "-")[:HOST_CHARS_MAX] or "unknown"


def write_of(handles: Iterable[Handle]) -> str:
    """No two writes name the same attempts, unless neither has any rows."""
    names = sorted(handle.transactional_id for handle in handles)
    return sha256("\n".join(names).encode()).hexdigest()[:_HASH_CHARS]
