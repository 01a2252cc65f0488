"""The quick way to `serve`, `up` and `node withdraw` is the same as the long one."""

import inspect

import pytest

from headrace.cli import quick, serve, signatures, up, withdraw

NODE = ["--node-id", "1", "--listen", "h:1", "--data", "d", "--metadata", "sqlite:m"]


@pytest.mark.parametrize(
    ("plain", "annotated"),
    [(serve.serve, signatures.serve), (up.up, signatures.up), (withdraw.withdraw, signatures.withdraw)],
)
def test_both_ways_have_the_same_options_and_defaults(plain: object, annotated: object) -> None:
    assert callable(plain) and callable(annotated)
    ours, theirs = inspect.signature(plain).parameters, inspect.signature(annotated).parameters
    assert {name: p.default for name, p in ours.items()} == {name: p.default for name, p in theirs.items()}


def test_options_written_in_full_are_read() -> None:
    tokens = [*NODE, "--set", "a=1", "--json", "--set", "b=2"]
    assert quick.read(inspect.signature(serve.serve), tokens) == {
        "node_id": 1,
        "listen": "h:1",
        "data": "d",
        "metadata": "sqlite:m",
        "settings": ("a=1", "b=2"),
        "json": True,
    }
    assert quick.read(inspect.signature(up.up), []) == {}


@pytest.mark.parametrize(
    "tokens",
    [
        NODE[2:],
        [*NODE, "--help"],
        [*NODE, "-h"],
        [*NODE, "--bogus"],
        [*NODE, "stray"],
        [*NODE, "--set"],
        [*NODE, "--set", "--json"],
        [*NODE, "--node-id", "2"],
        [*NODE, "--metrics=h:2"],
        ["--node-id", "x", *NODE[2:]],
        ["--node-id", "-1", *NODE[2:]],
    ],
)
def test_whatever_is_not_plainly_right_goes_the_long_way(tokens: list[str]) -> None:
    assert quick.read(inspect.signature(serve.serve), tokens) is None


def test_other_commands_go_the_long_way() -> None:
    assert quick.find([]) is None
    assert quick.find(["topic", "list"]) is None
    assert quick.find(["node"]) is None
    assert quick.find(["up", "--json"]) is not None
    assert quick.find(["node", "withdraw", "--data", "d", "--metadata", "sqlite:m"]) is not None
