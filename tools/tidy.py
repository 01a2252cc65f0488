"""What a linter does not say about the tree: `python -m tools.tidy`.

Files and functions stay small, nothing is put off by a note, nothing names one person's machine or registry, and
an exception to a rule carries its reason.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FOLDERS = ("src", "tests", "tools", "bench", "demo", "docs", "examples", ".ci")
TOP_FILES = ("Makefile", "README.md", "CHANGELOG.md", "pyproject.toml")
SUFFIXES = frozenset({".py", ".md", ".toml", ".mk", ".xml", ".json", ".js", ".java", ".txt", ".sh", ".yaml", ""})
SKIPPED_FOLDERS = frozenset({"__pycache__", "headrace.egg-info", "out", "node_modules"})

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

# Written so that this file does not match itself.
NOWHERE: dict[str, re.Pattern[str]] = {
    "a note to do it later": re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X)\b"),
    "a path of one machine": re.compile(r"(?<![\w.])/(work|root|home|Users)/\w"),
    "the address of a package registry": re.compile(
        r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org|repo1?\.maven(\.apache)?\.org|deb\.debian\.org"
    ),
    "a conflict marker": re.compile(r"^(<{7}|>{7}) "),
    "white space at the end of a line": re.compile(r"[ \t\r]$"),
}

IN_PYTHON: dict[str, re.Pattern[str]] = {
    "a tab": re.compile(r"\t"),
    "type: ignore without its code and a reason": re.compile(r"# type: [i]gnore(?!\[[\w, -]+\]  # \w)"),
    "noqa without its code and a reason": re.compile(r"# [n]oqa(?!: [A-Z]+\d+(, [A-Z]+\d+)*  # \w)"),
    "a catch-all without a reason beside it": re.compile(r"^\s*except( (Base)?Exception)?( as \w+)?:(?!  # \w)"),
}


def violations(root: Path = ROOT) -> list[str]:
    found = []
    for path in _files(root):
        relative = path.relative_to(root).as_posix()
        found += [f"{relative}:{line}: {sentence}" for line, sentence in untidiness(relative, path.read_text())]
    return found


def _files(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            parts = path.relative_to(root).parts
            if path.is_file() and path.suffix in SUFFIXES and not SKIPPED_FOLDERS.intersection(parts):
                yield path
    yield from (root / name for name in TOP_FILES if (root / name).exists())


def untidiness(name: str, text: str) -> Iterator[tuple[int, str]]:
    """What is wrong with one file: (line, sentence)."""
    lines = text.split("\n")
    if text and (lines[-1] or lines[-2:-1] == [""]):
        yield len(lines), "does not end with exactly one newline"
    python = name.endswith(".py")
    patterns = NOWHERE | IN_PYTHON if python else NOWHERE
    for number, line in enumerate(lines, start=1):
        for what, pattern in patterns.items():
            if pattern.search(line):
                yield number, f"holds {what}"
    if python:
        yield from _python_untidiness(name, text, len(lines) - 1)


def _python_untidiness(name: str, text: str, line_count: int) -> Iterator[tuple[int, str]]:
    if line_count > FILE_LINES_MAX:
        yield line_count, f"is longer than {FILE_LINES_MAX} lines: split it"
    prints = name.startswith(("src/headrace/cli/", "tests/", "tools/", "bench/", "demo/", "examples/"))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {length} lines, more than {FUNCTION_LINES_MAX}: split it"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and not prints:
            yield node.lineno, "prints; only the command line does"


def main() -> int:
    found = violations()
    for sentence in found:
        print(sentence)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
