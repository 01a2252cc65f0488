"""What people see while they wait: acts, figures that move, and at the end the promises."""

import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from demo.plan import PARTITIONS
from demo.proofs.promise import Promise

if TYPE_CHECKING:
    from demo.stage import Stage

LINES = 14
REFRESH_PER_S = 4
FINDINGS_SHOWN = 3


class Terminal:
    """On a terminal a live view; elsewhere a line for each thing that happens."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._lines: list[str] = []
        self._acts: list[tuple[str, str]] = []
        self._stage: Stage | None = None
        self._lock = threading.Lock()
        self._live = Live(get_renderable=self._view, console=self._console, refresh_per_second=REFRESH_PER_S)

    def __enter__(self) -> "Terminal":
        if sys.stdout.isatty():
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def watch(self, stage: "Stage") -> None:
        self._stage = stage

    def begin(self, act: str) -> None:
        with self._lock:
            self._acts = [(title, "done") for title, _ in self._acts] + [(act, "now")]
        if not self._live.is_started:
            self._console.print(f"== {act}")

    def happened(self, at_s: float, what: str) -> None:
        line = f"{at_s:6.1f} s  {what}"
        with self._lock:
            self._lines.append(line)
        if not self._live.is_started:
            self._console.print(line + self._figures(), soft_wrap=True)

    def _view(self) -> RenderableType:
        with self._lock:
            acts, lines = list(self._acts), self._lines[-LINES:]
        marks = [
            Text(f" {'✓' if state == 'done' else '▶'} {title}", "green" if state == "done" else "bold")
            for title, state in acts
        ]
        return Group(Text("Headrace demo", "bold"), *marks, Text(""), *map(Text, lines), Text(self._figures(), "cyan"))

    def _figures(self) -> str:
        stage = self._stage
        if stage is None or stage.queries is None or stage.watcher is None:
            return ""
        leaders = " ".join(str(stage.watcher.leader(at)).replace("-1", "-") for at in range(PARTITIONS))
        acked, done = stage.acked(), stage.queries.read
        behind = ", ".join(f"{query} {max(acked - read, 0):,} behind" for query, read in done.items())
        return f"  [{acked:,} orders acknowledged; {behind}; leaders {leaders}]"


def show(promises: Sequence[Promise]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for one in promises:
        mark = ("  kept   ", "green") if one.ok else ("  BROKEN ", "bold red")
        console.print(Text.assemble(mark, (one.claim, "bold"), f"  ({one.document})"))
        figures = ", ".join(f"{name}: {_short(value)}" for name, value in one.figures.items())
        console.print(Padding(Text(figures, "dim"), (0, 0, 0, 9)), soft_wrap=False)
        for finding in one.findings[:FINDINGS_SHOWN]:
            console.print(Padding(Text(finding, "red"), (0, 0, 0, 9)), soft_wrap=False)


def _short(value: float | int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
