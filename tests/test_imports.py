"""The direction of imports, and the purity of core, as docs/ARCHITECTURE.md tells them."""

import ast

import pytest

from tools.imports import BANNED, MAY_IMPORT, SOURCE, breaches, package_of, violations


def broken_by(package: str, code: str) -> list[str]:
    return [sentence for _, sentence in breaches(package, ast.parse(code))]


def test_every_import_goes_in_the_allowed_direction() -> None:
    assert violations() == []


def test_every_package_stands_in_the_table() -> None:
    packages = {package_of(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")}
    assert packages <= set(MAY_IMPORT)


def test_the_table_has_no_circle() -> None:
    done: set[str] = set()
    waiting = dict(MAY_IMPORT)
    while waiting:
        free = [package for package, targets in waiting.items() if targets <= done]
        assert free, f"a circle among {sorted(waiting)}"
        done.update(free)
        for package in free:
            del waiting[package]


@pytest.mark.parametrize(
    ("package", "code", "sentence"),
    [
        ("core", "from headrace.storage.log import Log", "core may not import storage"),
        ("core", "from headrace import storage", "core may not import storage"),
        ("storage", "import headrace.broker.parking", "storage may not import broker"),
        ("client", "from headrace.broker.broker import Broker", "client may not import broker"),
        ("cli", "from headrace.storage import log", "cli may not import storage"),
        ("wire", "from headrace.config import BrokerConfig", "wire may not import config"),
        ("broker", "from . import parking", "imports by a relative name; write the full one"),
        ("core", "async def wait(): ...", "core holds no async"),
        ("wire", "def later():\n    import time", "wire may not import time"),
        ("broker", "import random", "broker may not import random"),
        ("broker", "import rich", "broker may not import rich, which others wrote"),
        ("broker", "open('x')", "broker opens a file"),
        ("net", "import os\nos.open('x', 0)", "net calls os.open"),
        ("controller", "path.read_text()", "controller calls read_text"),
        ("attic", "", "tools/imports.py does not say whom attic may import"),
    ],
)
def test_a_breach_is_found(package: str, code: str, sentence: str) -> None:
    assert broken_by(package, code) == [sentence]


@pytest.mark.parametrize(
    ("package", "code"),
    [
        ("core", "from headrace.wire.batch import BatchHeader"),
        ("core", "from headrace.core import epochs\nimport bisect"),
        ("wire", "import crc32c"),
        ("storage", "import os\nos.open('x', 0)"),
        ("cli", "open('x')"),
        ("broker", "from headrace import __version__"),
    ],
)
def test_what_is_allowed_is_not_reported(package: str, code: str) -> None:
    assert broken_by(package, code) == []


SOURCES = ["time", "datetime", "os", "io", "pathlib", "socket", "asyncio", "threading", "logging", "random"]


@pytest.mark.parametrize("module", SOURCES)
def test_core_may_import_no_source_of_time_chance_or_effect(module: str) -> None:
    assert module in BANNED["core"]
    assert broken_by("core", f"import {module}")
