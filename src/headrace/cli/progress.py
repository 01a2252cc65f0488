"""A bar for people who wait: on a terminal only, and only when the work takes longer than two seconds."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.progress

PATIENCE_S = 2.0
REFRESH_S = 0.1


class Bar:
    """`total` is None when nobody knows it. Not `wanted`: a person is typing or reading on the same terminal."""

    def __init__(self, what: str, total: int | None, *, wanted: bool) -> None:
        self._what = what
        self._total = total
        self._begun = time.monotonic()
        self._shown_at = 0.0
        self._watched = wanted and sys.stderr.isatty()
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int) -> None:
        """May be called as often as wanted."""
        now = time.monotonic()
        if not self._watched or now - self._begun < PATIENCE_S or now - self._shown_at < REFRESH_S:
            return
        self._shown_at = now
        if self._bar is None:
            self._bar = _bar()
            self._task = self._bar.add_task(self._what, total=self._total, rate="")
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=done, rate=_rate(done / (now - self._begun)), refresh=True)


def _rate(per_second: float) -> str:
    """What is slow is told exactly enough to differ from nothing."""
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"


def _bar() -> "rich.progress.Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
