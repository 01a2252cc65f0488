"""How the process of a command ends."""

import sys

import pytest

from headrace import cli


@pytest.mark.parametrize(("library", "ended"), [("obstore", [0]), ("deltalake", [0]), ("json", [])])
def test_threads_of_a_library_do_not_live_to_see_the_interpreter_end(
    monkeypatch: pytest.MonkeyPatch, library: str, ended: list[int]
) -> None:
    for name in cli.THREADED_LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, library, sys)
    monkeypatch.setattr(sys, "argv", ["headrace", "--version"])
    at_once: list[int] = []
    monkeypatch.setattr(cli, "_end_at_once", at_once.append)
    assert cli.main() == 0 and at_once == ended
