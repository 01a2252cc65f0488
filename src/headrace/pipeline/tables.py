"""What both kinds of tables promise: a batch of a query is in the table once, whoever writes it, and how often."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from headrace.pipeline.files import Written


class Table(Protocol):
    def begin(self) -> None:
        """Before the first batch: the table is there, and what an earlier run left half done is finished. AskedWrongly
        for a table of the other kind: its readers would not see what is written."""
        ...

    def has(self, batch_id: int) -> bool:
        """Whether the batch is in the table. If it was decided on only, it is now."""
        ...

    def below(self, batch_id: int) -> str:
        """Where tasks put the files of the batch, within the table: empty, or a directory with a slash behind it."""
        ...

    def commit(self, batch_id: int, files: Sequence[Written], plan: str = "") -> bool:
        """All of them become rows of the table, or none. False if somebody else has committed the batch.
        PipelineFailed if the driver does not see what tasks have written: then none. `plan` is kept with the batch."""
        ...

    def last_batch(self) -> int | None:
        """Of the query, in the table."""
        ...

    def plan_of(self, batch_id: int) -> str:
        """What was kept with that batch, which is in the table; empty if that is not known any more."""
        ...

    def small_files(self, days: Sequence[str]) -> dict[str, int]:
        """How many of each day there are, whoever wrote them."""
        ...

    def merge(self, days: Iterable[str], files_min: int) -> int:
        """Small files of a day become one, if there are so many of them. Returns how many went."""
        ...
