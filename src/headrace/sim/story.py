"""What happened in a world, in the order in which it happened: the part of it that a person wants to read."""

from typing import NamedTuple

from headrace.sim.loop import SimLoop


class Told(NamedTuple):
    at_s: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:9.3f} s  {self.who:<8} {self.what}"


class Story:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.told: list[Told] = []

    def tell(self, who: str, what: str) -> None:
        self._loop.note(f"{who} {what}".encode())
        self.told.append(Told(self._loop.now_s, who, what))

    def lines(self) -> list[str]:
        return [str(told) for told in self.told]
