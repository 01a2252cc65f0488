"""The bar of a pipeline: on a terminal only. Rows, rows per second, the lag in seconds, and when it will be through."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.progress

    from headrace.pipeline.lake import LakeProgress, LakeResult


class LakeBar:
    def __init__(self) -> None:
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None
        self._rows = 0
        self._is_told = False

    def __enter__(self) -> "LakeBar":
        if sys.stderr.isatty():
            self._bar = _bar()
            self._task = self._bar.add_task("rows", total=None, told="Spark starts")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def began(self) -> None:
        """A stream may wait for its first record for long."""
        self._show(self._rows, None, "waits for its first batch")

    def progressed(self, progress: "LakeProgress") -> None:
        self._rows = progress.rows
        self._is_told = True
        self._show(progress.rows, progress.rows + progress.lag_rows, told(progress))

    def committed(self, result: "LakeResult") -> None:
        self._rows = max(self._rows, result.rows + result.dead_letters)
        self._show(self._rows, None, None if self._is_told else "")

    def _show(self, rows: int, total: int | None, text: str | None) -> None:
        if self._bar is None or self._task is None:
            return
        self._bar.update(self._task, completed=rows)
        if total is not None:
            self._bar.update(self._task, total=total)
        if text is not None:
            self._bar.update(self._task, told=text)


class PiecesBar:
    """Of a job whose tasks are counted."""

    def __init__(self) -> None:
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None
        self._began_s = 0.0

    def __enter__(self) -> "PiecesBar":
        if sys.stderr.isatty():
            self._bar = _bar()
            self._task = self._bar.add_task("pieces", total=None, told="Spark starts")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, total: int) -> None:
        if self._bar is None or self._task is None:
            return
        self._began_s = self._began_s or time.monotonic()
        spent_s = time.monotonic() - self._began_s
        text = f"through in {spent_s / done * (total - done):,.0f} s" if done else ""
        self._bar.update(self._task, completed=done, total=total, told=text)


def told(progress: "LakeProgress") -> str:
    """`12,000 rows/s, lag 3 s, through in 14 s`."""
    parts = [f"{progress.rows_per_s:,.0f} rows/s", f"lag {progress.lag_s:,.0f} s"]
    if progress.lag_rows and progress.end_s is not None:
        parts.append(f"through in {progress.end_s:,.0f} s")
    return ", ".join(parts)


def _bar() -> "rich.progress.Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}"),
        console=Console(stderr=True),
        transient=True,
    )
