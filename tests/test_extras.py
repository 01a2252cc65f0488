"""What `pip install` brings: each extra has all that is imported by those whom it is for."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from re import match

import pytest

from tools.imports import MAY_IMPORT, THIRD_PARTY

PROJECT = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]
MODULES = {"grpcio": "grpc"}
"""Of packages that are imported by another name."""
BROUGHT = {"pyspark": {"pyspark", "py4j"}}
"""What a package needs itself."""


def imported_by(package: str) -> set[str]:
    """What others wrote, and this package or one below it imports."""
    packages = {package, *MAY_IMPORT[package]}
    return {module for one in packages for module in THIRD_PARTY.get(one, ())}


def installed_with(*extras: str) -> set[str]:
    wanted = [*PROJECT["dependencies"], *(each for extra in extras for each in PROJECT["optional-dependencies"][extra])]
    return modules_of(wanted)


def modules_of(requirements: Iterable[str]) -> set[str]:
    names = [found[0] for each in requirements if (found := match(r"[\w-]+", each))]
    return {module for name in names for module in BROUGHT.get(name, {MODULES.get(name, name)})}


@pytest.mark.parametrize(
    ("package", "extras"),
    [
        ("client", ()),
        ("tier", ("tier",)),
        ("metadata", ("etcd",)),
        ("node", ("tier", "etcd")),
        ("spark", ("spark",)),
        ("pipeline", ("spark", "lake")),
    ],
)
def test_what_is_imported_is_installed(package: str, extras: tuple[str, ...]) -> None:
    assert imported_by(package) <= installed_with(*extras)


def test_what_several_extras_bring_has_one_bound() -> None:
    """Whichever extra brought it, it is the same library."""
    bounds: dict[str, set[str]] = {}
    for extra in ("fast", "etcd", "tier", "spark", "lake", "console"):
        for each in PROJECT["optional-dependencies"][extra]:
            name, bound = each.partition(">=")[::2]
            bounds.setdefault(name, set()).add(bound.partition(";")[0])
    assert {name: each for name, each in bounds.items() if len(each) > 1} == {}
