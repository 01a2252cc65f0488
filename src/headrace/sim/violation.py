"""A promise that was not kept."""

from typing import NamedTuple


class Violation(NamedTuple):
    kind: str
    at_s: float
    """When it could be seen first; 0 when that is not known."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence}"
