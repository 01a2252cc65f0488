"""Who may import whom, as data, and the check of it: `python -m tools.imports`.

The direction is `node > broker > controller | tier > storage | metadata | net > core | wire > names` for the server and
`pipeline > spark > own > client | tier > net > core | wire > names` for the client; the composition roots, node, client
and withdrawal, may also hand in `system`: the real clock, chance and threads. `cli`, `sim` and `testing` may see both
columns.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "headrace"

NAMES = frozenset({"model", "errors", "settings", "broker_config", "config", "runtime"})
"""The lowest layer: names, values, settings, and what a node is handed from outside. Every package may see it."""

PURE = NAMES | {"wire", "core"}

MAY_IMPORT: dict[str, frozenset[str]] = {
    "model": frozenset(),
    "errors": frozenset({"model"}),
    "settings": frozenset({"model", "errors"}),
    "broker_config": frozenset({"model", "errors", "settings"}),
    "config": frozenset({"model", "errors", "settings", "broker_config"}),
    "runtime": frozenset({"model", "errors"}),
    "system": frozenset({"runtime"}),
    "worker": frozenset(),
    "wire": frozenset({"model", "errors"}),
    "core": NAMES | {"wire"},
    "storage": PURE,
    "metadata": PURE,
    "net": PURE,
    "tier": PURE | {"storage"},
    "controller": PURE | {"metadata"},
    "broker": PURE | {"storage", "tier", "metadata", "net", "controller"},
    "node": PURE | {"storage", "tier", "metadata", "net", "controller", "broker", "system", "node_config"},
    "node_config": PURE | {"storage", "tier", "metadata", "net", "system"},
    "withdrawal": PURE | {"storage", "metadata", "system"},
    "client": PURE | {"net", "system"},
    "own": PURE | {"client", "net"},
    "spark": PURE | {"client", "own", "net", "system", "tier"},
    "pipeline": PURE | {"spark", "client", "own", "net", "system", "tier"},
    "sim": PURE
    | {"storage", "tier", "metadata", "net", "controller", "broker", "node", "node_config", "client", "own"},
    "cli": PURE | {"client", "own", "node", "node_config", "withdrawal", "system", "sim", "tier", "pipeline"},
    "testing": PURE
    | {"client", "own", "node", "node_config", "system", "sim", "net", "storage", "tier", "metadata", "broker"},
    "__init__": frozenset(),
    "__main__": frozenset({"cli"}),
}

THIRD_PARTY: dict[str, frozenset[str]] = {
    "wire": frozenset({"crc32c", "cramjam"}),
    "storage": frozenset({"crc32c"}),
    "metadata": frozenset({"msgspec", "grpc"}),
    "tier": frozenset({"crc32c", "msgspec", "obstore"}),
    "controller": frozenset({"msgspec"}),
    "core": frozenset({"msgspec"}),
    "cli": frozenset({"cyclopts", "rich", "uvloop"}),
    "testing": frozenset({"pytest"}),
    # The extra `spark`; nobody else imports them, so that a broker and a client need none of them.
    "spark": frozenset({"pyspark", "pyarrow", "numba", "numpy", "uvloop"}),
    # Besides, the extra `lake`: the log of Delta tables, and Avro, for which Spark needs jars.
    "pipeline": frozenset({"pyspark", "py4j", "pyarrow", "numba", "numpy", "crc32c", "deltalake", "fastavro"}),
}
"""What a package may use of other people's code. A new name here needs its reason in docs/ARCHITECTURE.md."""

TIME_AND_CHANCE = frozenset({"time", "datetime", "calendar", "random", "secrets", "uuid", "sched"})
THREADS = frozenset({"threading", "_thread", "concurrent", "multiprocessing", "subprocess", "signal", "queue"})
FILES = frozenset({"pathlib", "tempfile", "shutil", "glob", "fileinput", "mmap", "sqlite3", "dbm", "shelve", "fcntl"})
SOCKETS_AND_TASKS = frozenset({"socket", "ssl", "select", "selectors", "asyncio", "http", "urllib", "contextvars"})

BANNED_WHEN_PURE = (
    TIME_AND_CHANCE | THREADS | FILES | SOCKETS_AND_TASKS | {"os", "io", "sys", "logging", "warnings", "ctypes"}
)

BANNED: dict[str, frozenset[str]] = {
    "model": BANNED_WHEN_PURE,
    "errors": BANNED_WHEN_PURE,
    "settings": BANNED_WHEN_PURE,
    "broker_config": BANNED_WHEN_PURE,
    "config": BANNED_WHEN_PURE,
    "wire": BANNED_WHEN_PURE,
    "core": BANNED_WHEN_PURE,
    "runtime": FILES,
    # Its jobs run in a lane beside the loop, so that it may need a lock; it starts no thread.
    "storage": TIME_AND_CHANCE | (THREADS - {"threading"}) | SOCKETS_AND_TASKS,
    "metadata": TIME_AND_CHANCE | THREADS | (FILES - {"sqlite3", "pathlib"}),
    "net": TIME_AND_CHANCE | THREADS | FILES,
    "tier": (TIME_AND_CHANCE - {"datetime"}) | THREADS | FILES,
    "controller": TIME_AND_CHANCE | THREADS | FILES,
    "broker": TIME_AND_CHANCE | THREADS | FILES,
    "client": TIME_AND_CHANCE | THREADS | FILES,
    # Its sync door runs a loop in a thread.
    "own": TIME_AND_CHANCE | (THREADS - {"threading", "concurrent"}) | FILES,
    # All chance comes from one seed, and time from its own loop.
    "sim": (TIME_AND_CHANCE - {"random"}) | THREADS | FILES,
}
"""A node is handed its clock, its random source and its way off the loop: a simulator hands in its own."""

OPENS_FILES = frozenset({"storage", "cli", "testing", "system", "spark"})
"""Data files are storage's alone; cli reads what a user wants to produce, testing makes its own directory, system asks
the kernel which boot this is, and processes of a Spark driver that know nothing of each other share an empty file."""

FILE_CALLS = frozenset(
    {"open", "fdopen", "mkdir", "makedirs", "rename", "replace", "unlink", "remove", "rmdir", "truncate"}
    | {"link", "symlink", "scandir", "listdir", "walk"}
)
PATH_METHODS = frozenset({"read_text", "read_bytes", "write_text", "write_bytes"})


def violations(source: Path = SOURCE) -> list[str]:
    """Every breach of the tables above, one sentence each."""
    found = []
    for path in sorted(source.rglob("*.py")):
        relative = path.relative_to(source)
        found += [
            f"src/headrace/{relative}:{line}: {sentence}"
            for line, sentence in breaches(package_of(relative), ast.parse(path.read_text()))
        ]
    return found


def package_of(relative: Path) -> str:
    return relative.parts[0].removesuffix(".py")


def breaches(package: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What one module of that package does against the rules: (line, sentence)."""
    if package not in MAY_IMPORT:
        yield 1, f"tools/imports.py does not say whom {package} may import"
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _breach_of_import(package, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, "imports by a relative name; write the full one"
            elif node.module == "headrace":
                for alias in node.names:
                    yield from _breach_of_import(package, f"headrace.{alias.name}", node.lineno)
            else:
                yield from _breach_of_import(package, node.module or "", node.lineno)
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            if package in PURE - {"runtime"}:
                yield node.lineno, f"{package} holds no async"
        elif isinstance(node, ast.Call) and package not in OPENS_FILES:
            yield from _breach_of_call(package, node)


def _breach_of_import(package: str, module: str, line: int) -> Iterator[tuple[int, str]]:
    top, _, rest = module.partition(".")
    if top == "headrace":
        target = rest.partition(".")[0]
        if target and not target.startswith("__") and target != package and target not in MAY_IMPORT[package]:
            yield line, f"{package} may not import {target}"
    elif top in BANNED.get(package, frozenset()):
        yield line, f"{package} may not import {top}"
    elif top not in sys.stdlib_module_names and top not in THIRD_PARTY.get(package, frozenset()):
        yield line, f"{package} may not import {top}, which others wrote"


def _breach_of_call(package: str, call: ast.Call) -> Iterator[tuple[int, str]]:
    match call.func:
        case ast.Name(id="open"):
            yield call.lineno, f"{package} opens a file"
        case ast.Attribute(value=ast.Name(id="os" | "io" as module), attr=name) if name in FILE_CALLS:
            yield call.lineno, f"{package} calls {module}.{name}"
        case ast.Attribute(attr=name) if name in PATH_METHODS:
            yield call.lineno, f"{package} calls {name}"


def main() -> int:
    found = violations()
    for sentence in found:
        print(sentence)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
