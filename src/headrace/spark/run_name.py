"""What brokers keep with the last batch of a query: which run wrote it, where that ran, and which of its writes it was.

A run that comes to a batch which it has committed itself either lost the answer, and names the very same attempts
again, or writes a second time under one name. The second is a mistake of whoever wrote the query, and rows would be
lost without a word if the two could not be told apart.

The last few runs before it are kept too, so that one of them that comes back in another process is known to have had
the query, and to have lost it.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from headrace.client.commit_group import Handle
from headrace.core.transactional_id import NAME_CHARS_MAX

HOST_CHARS_MAX = 48
_WRITE_CHARS = 12
_MARK_CHARS = 8


class RunName(NamedTuple):
    run_id: str
    host: str
    write: str = ""
    """Of a batch: told by the attempts that it named."""
    before: tuple[str, ...] = ()
    """Marks of the runs before it, the latest first. Those stand in a name that there is room for."""

    def __str__(self) -> str:
        name = f"{self.run_id}@{self.host}/{self.write}"
        marks_max = (NAME_CHARS_MAX - len(name)) // (_MARK_CHARS + 1)
        return "/".join([name, *self.before[: max(marks_max, 0)]])

    def runs_before(self, run_id: str) -> tuple[str, ...]:
        """Marks of those before that one, which comes now."""
        if run_id == self.run_id:
            return self.before
        return tuple(dict.fromkeys([_mark(self.run_id), *self.before])) if self.run_id else ()

    def knows(self, run_id: str) -> bool:
        """Whether that run has had the query."""
        return run_id == self.run_id or _mark(run_id) in self.before


def read_run_name(text: str | None) -> RunName:
    run_id, _, rest = (text or "").partition("@")
    host, _, marks = rest.partition("/")
    write, *before = marks.split("/")
    return RunName(run_id, host, write, tuple(before))


def _mark(run_id: str) -> str:
    return sha256(run_id.encode()).hexdigest()[:_MARK_CHARS]


def host_name(name: str) -> str:
    """As it can stand in names that have parts."""
    return name.replace(":", "-").replace("/", "-")[:HOST_CHARS_MAX] or "unknown"


def write_of(handles: Iterable[Handle]) -> str:
    """No two writes name the same attempts, unless neither has any rows."""
    names = sorted(handle.transactional_id for handle in handles)
    return sha256("\n".join(names).encode()).hexdigest()[:_WRITE_CHARS]
