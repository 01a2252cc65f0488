"""The map in docs/ARCHITECTURE.md: a line per file, from its own docstring: `python -m tools.file_map [--write]`."""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "headrace"
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN = "<!-- The map is made by `make docs`. -->\n"
END = "<!-- End of the map. -->\n"

FOLDERS = {
    "": "names and values, settings, what a node is handed from outside, and the composition root",
    "wire": "bytes to messages and back; pure",
    "wire/messages": "one class per message, for all its versions",
    "core": "decisions: no clock, no file, no socket, no task, no log, no chance",
    "storage": "the only code that opens data files",
    "tier": "segments in object stores: the port, its adapters, names, manifests, verification",
    "metadata": "where topics, ids and settings are kept",
    "net": "sockets, frames, backpressure",
    "controller": "changes of the metadata: decided by pure functions, then written with compare-and-set",
    "broker": "requests, appends, long polls, chores, metrics",
    "broker/coordinators": "groups and transactions: who keeps them, and what their logs hold",
    "broker/handlers": "one file per API, named by its key",
    "client": "producer, consumer and administrator over the wire",
    "own": "single ownership of partitions and names, over the wire",
    "spark": "Spark reads and writes topics: the data source `headrace`",
    "spark/decode": "record batches into Arrow buffers, by compiled loops",
    "spark/encode": "Arrow buffers into record batches, by compiled loops",
    "pipeline": "jobs on Spark: topics to tables, and a look at all replicas of a topic",
    "cli": "the command `headrace`",
    "sim": "whole clusters on virtual time, from one seed",
    "testing": "brokers inside a test",
}


def file_map(source: Path = SOURCE) -> str:
    return "\n".join(_lines(source)) + "\n"


def _lines(source: Path) -> Iterator[str]:
    files = sorted((path.relative_to(source) for path in source.rglob("*.py")), key=_place)
    for folder, inside in groupby(files, key=lambda path: path.parent.as_posix().removeprefix(".")):
        yield ""
        yield f"**`{folder}/`**: {FOLDERS[folder]}" if folder else f"**`src/headrace/`**: {FOLDERS[folder]}"
        yield ""
        for path in inside:
            if sentence := first_sentence((source / path).read_text()):
                yield f"- `{path.name}` {sentence}"
    yield ""


def _place(path: Path) -> tuple[int, str]:
    return list(FOLDERS).index(path.parent.as_posix().removeprefix(".")), path.name


def first_sentence(code: str) -> str:
    """Of the docstring's first paragraph; an empty module has none."""
    docstring = ast.get_docstring(ast.parse(code)) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", paragraph)[0].removesuffix(".").rstrip(":")


def with_map(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + file_map() + END + after


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        PAGE.write_text(with_map(PAGE.read_text()))
        return 0
    print(file_map(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
