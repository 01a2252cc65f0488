"""An act that fails ends in a report, in which the promise is broken, and in exit code 1."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo import __main__ as play
from demo import finale
from demo.acts import Act
from demo.stage import Stage
from demo.terminal import Terminal


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def lead(_stage: Stage) -> None:
    raise AssertionError("not in 120 s: another node leads\nand what the nodes have told")


def look(_stage: Stage) -> None:
    raise LookupError("no node is the controller at present")


def never(_stage: Stage) -> None:
    raise AssertionError("it was played")


@pytest.mark.parametrize(("act", "reason"), [(lead, "not in 120 s: another node leads"), (look, "no node is the")])
def test_an_act_that_fails_is_a_broken_promise_in_the_report(
    act: Callable[[Stage], None],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(play, "ACTS", [Act("The leader is killed", act), Act("The next one", never)])
    for method in ("open", "end"):
        monkeypatch.setattr(Stage, method, lambda _stage: None)
    directory = tmp_path / "demo"
    monkeypatch.setattr(sys, "argv", ["demo", "--directory", str(directory)])
    monkeypatch.setattr(finale, "close", look)
    monkeypatch.setattr(finale, "read_back", lambda _stage: None)
    assert play.main() == 1
    told = json.loads((directory / "report.json").read_text())
    first, *rest = told
    assert not first["ok"] and first["promise"].startswith("Every act came to its end")
    assert first["findings"][0].startswith(f"The leader is killed: {reason}")
    assert len(rest) == 14 and "Headrace demo" in (directory / "report.html").read_text()
    shown = capfd.readouterr()
    assert "Traceback" not in shown.out + shown.err and "BROKEN" in shown.out
    assert "Traceback" in (directory / "failures.log").read_text()
    assert "it was played" not in json.dumps(told)


def test_who_interrupts_it_twice_leaves_nothing_running_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    def begin(_stage: Stage) -> None:
        signal.raise_signal(signal.SIGINT)

    def end(_stage: Stage) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        ended.append("all")

    monkeypatch.setattr(Stage, "open", begin)
    monkeypatch.setattr(Stage, "end", end)
    monkeypatch.setattr(sys, "argv", ["demo", "--directory", str(tmp_path / "demo")])
    assert play.main() == play.INTERRUPTED and ended == ["all"]


def test_all_that_can_be_read_back_is_read_though_something_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Terminal() as shown:
        stage = Stage(tmp_path, shown)
    done: list[str] = []

    def attempt(what: str, _step: object) -> bool:
        done.append(what)
        return False

    monkeypatch.setattr(stage, "attempt", attempt)
    finale.read_back(stage)
    assert done[0] == "The topics are read back" and done[-1] == "The disks are read"
