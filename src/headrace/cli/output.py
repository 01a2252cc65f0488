"""Standard output: bytes, JSON and tables, and what happens when nobody reads it any more."""

import json
import os
import sys
from collections.abc import Iterable, Sequence

from headrace.cli.outcome import Failure, OutputClosed

_IN_LINES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_IN_CELLS = {**_IN_LINES, ord("\n"): "\\n", ord("\t"): "\\t"}
"""Names come from whoever connects, and must not steer the terminal of whoever looks at them."""


def open_closed_streams() -> None:
    """Whoever started us may have closed 0, 1 or 2: they lead nowhere then, and no file or socket gets their number."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != fd:
                os.dup2(nowhere, fd)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(fd, mode))


def write(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        raise Failure(f"standard output: {error.strerror}") from None


def flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        raise Failure(f"standard output: {error.strerror}") from None


def line(text: str) -> None:
    write(text.translate(_IN_LINES).encode() + b"\n")


def document(value: object) -> None:
    """One JSON value on one line."""
    write(json.dumps(value, ensure_ascii=False).encode() + b"\n")


def say(text: str) -> None:
    """For people: never mixed with what a program reads from standard output."""
    print(text.translate(_IN_LINES), file=sys.stderr, flush=True)


def close() -> None:
    """The interpreter flushes at exit too: let that go nowhere when the reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Boxed on a terminal; elsewhere in plain columns, of which nothing is cut off."""
    cells = [[str(cell).translate(_IN_CELLS) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _boxed(columns, cells)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in [list(columns), *cells]:
        line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _boxed(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    shown = Table(*(Column(name, overflow="fold") for name in columns), box=box.SIMPLE_HEAD)
    for row in cells:
        shown.add_row(*map(Text, row))
    Console().print(shown)
