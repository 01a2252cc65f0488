"""`headrace own`: who owns what, claimed, watched, and freed."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from headrace import own
from headrace.cli import own_list
from headrace.cli.asking import Told
from headrace.testing import Cluster
from tests.cli.programs import PROGRAM, headrace, wait_until


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        assert headrace("topic", "create", "t", "--bootstrap", cluster.bootstrap).returncode == 0
        yield cluster


class Running:
    """A command that goes on until it is interrupted."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._out, self._err = directory / "out", directory / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen([PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def lines(self) -> list[str]:
        return self._out.read_text().splitlines()

    def until(self, text: str) -> str:
        wait_until(lambda: any(text in line for line in self.lines()), f"it says {text!r}: {self.lines()}")
        return next(line for line in self.lines() if text in line)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)

    def said(self) -> str:
        return self._err.read_text()


@contextmanager
def running(*arguments: str) -> Iterator[Running]:
    with TemporaryDirectory() as directory:
        command = Running(Path(directory), *arguments)
        try:
            yield command
        finally:
            if command.process.poll() is None:
                os.kill(command.process.pid, signal.SIGKILL)
                command.process.wait()
        assert "Traceback" not in command.said()


def listed(cluster: Cluster, *more: str) -> list[dict[str, Any]]:
    done = headrace("own", "list", *more, "--json", "--bootstrap", cluster.bootstrap)
    assert done.returncode == 0, done.said
    rows = json.loads(done.stdout)["own"]
    assert isinstance(rows, list)
    return rows


def test_nobody_owns_anything_at_first(cluster: Cluster) -> None:
    done = headrace("own", "list", "--bootstrap", cluster.bootstrap)
    assert (done.returncode, done.stdout) == (0, b"Nobody owns anything\n")
    assert listed(cluster) == []


def test_owners_are_listed_with_their_generations_and_who_was_refused_last(cluster: Cluster) -> None:
    with (
        own.claim_sync(cluster.bootstrap, "g", "t-0", exclusive="produce", client_id="anna") as anna,
        own.claim_sync(cluster.bootstrap, "h", "a name", client_id="ben"),
    ):
        with (
            pytest.raises(own.AlreadyOwned),
            own.claim_sync(cluster.bootstrap, "g", "t-0", client_id="cleo"),
        ):
            pass
        partition, name = listed(cluster)
        assert (partition["group"], partition["resource"], partition["generation"]) == ("g", "t-0", 1)
        assert partition["owner"]["client_id"] == anna.client_id and partition["exclusive"] == ["produce"]
        assert partition["refused"]["client_id"].startswith("cleo-")
        assert name["owner"]["client_id"].startswith("ben-") and name["refused"] is None
        assert [row["resource"] for row in listed(cluster, "h")] == ["a name"]
        lines = headrace("own", "list", "g", "--bootstrap", cluster.bootstrap).stdout.decode().splitlines()
        assert lines[0].split() == ["group", "resource", "generation", "owner", "for", "exclusive", "standbys",
                                    "refused", "last"]  # fmt: skip
        assert anna.client_id in lines[1] and "produce" in lines[1] and "cleo-" in lines[1]
    assert [row["owner"] for row in listed(cluster)] == [None, None]
    assert "nobody" in headrace("own", "list", "g", "--bootstrap", cluster.bootstrap).stdout.decode()


def test_a_claim_is_held_until_ctrl_c_and_is_told_of_its_loss_and_its_return(cluster: Cluster) -> None:
    with running("own", "claim", "g", "t-0", "--bootstrap", cluster.bootstrap) as command:
        line = command.until("held")
        assert line == "held: t-0 of group g at generation 1, everything before offset 0 is of earlier owners"
        cluster.reset(1, "clients")
        assert "lost: t-0: " in command.until("lost")
        command.until("regained: t-0 of group g at generation 1")
        refused = headrace("own", "claim", "g", "t-0", "--bootstrap", cluster.bootstrap)
        assert refused.returncode == 1 and "is owned by 'headrace-cli-" in refused.said
        assert command.end() == 0
    with running("own", "claim", "g", "t-0", "--json", "--bootstrap", cluster.bootstrap) as command:
        assert json.loads(command.until("held"))["generations"] == {"t-0": 2}
        assert command.end(signal.SIGTERM) == 0


def test_a_claim_that_another_takes_over_ends_with_an_error(cluster: Cluster) -> None:
    with running("own", "claim", "g", "t-0", "a name", "--bootstrap", cluster.bootstrap) as command:
        command.until("held: a name of group g at generation 1")
        with running("own", "claim", "g", "t-0", "--generation", "1", "--bootstrap", cluster.bootstrap) as other:
            other.until("held: t-0 of group g at generation 2")
            assert command.process.wait(30) == 1
            assert "lost for good: t-0: somebody else has had it since, at generation 2" in command.said()


def test_a_standby_waits_and_watching_shows_the_change(cluster: Cluster) -> None:
    bootstrap = ("--bootstrap", cluster.bootstrap)
    with running("own", "watch", "g", "--every", "50ms", *bootstrap) as watching:
        with running("own", "claim", "g", "t-0", *bootstrap) as first:
            first.until("held")
            watching.until("at generation 1")
            with running("own", "claim", "g", "t-0", "--wait", *bootstrap) as second:
                wait_until(lambda: listed(cluster)[0]["standbys"] == 1, "the second waits")
                assert first.end() == 0
                second.until("at generation 2")
                watching.until("at generation 2")
                assert second.end() == 0
        watching.until("is owned by nobody")
        watching.end()


def test_what_a_dead_owner_left_behind_is_freed(cluster: Cluster) -> None:
    bootstrap = ("--bootstrap", cluster.bootstrap)
    with running("own", "claim", "g", "t-0", "--exclusive", "produce", *bootstrap) as command:
        command.until("held")
        refused = headrace("own", "release", "g", "t-0", *bootstrap)
        assert refused.returncode == 1 and "is owned by" in refused.said
        command.end(signal.SIGKILL)
    wait_until(lambda: listed(cluster)[0]["owner"] is None, "the broker has noticed")
    assert listed(cluster)[0]["exclusive"] == ["produce"]
    done = headrace("own", "release", "g", "t-0", *bootstrap)
    assert done.stdout.decode() == "t-0 of group g is free; the last generation is 2\n"
    assert listed(cluster)[0]["exclusive"] == []
    assert headrace("produce", "t", *bootstrap, stdin=b"x\n").returncode == 0


def test_what_nobody_had_is_not_freed_and_not_remembered(cluster: Cluster) -> None:
    done = headrace("own", "release", "g", "mistyped", "--bootstrap", cluster.bootstrap)
    assert done.returncode == 1 and "mistyped of group g has no owner, and none is remembered" in done.said
    assert listed(cluster) == []


def test_names_that_others_chose_do_not_steer_the_terminal(cluster: Cluster) -> None:
    with own.claim_sync(cluster.bootstrap, "g", "a\x1b[2Jname\x9b", client_id="\x1b[31mred"):
        shown = headrace("own", "list", "--bootstrap", cluster.bootstrap).stdout.decode()
        assert "a\\x1b[2Jname\\x9b" in shown and "\\x1b[31mred-" in shown and "\x1b" not in shown
        refused = headrace("own", "claim", "g", "a\x1b[2Jname\x9b", "--bootstrap", cluster.bootstrap)
        assert refused.returncode == 1 and "\x1b" not in refused.said and "is owned by" in refused.said
        assert listed(cluster)[0]["resource"] == "a\x1b[2Jname\x9b", "programs get it as it is"


def test_a_living_owner_is_evicted_on_demand(cluster: Cluster) -> None:
    with own.claim_sync(cluster.bootstrap, "g", "t-0") as ownership:
        done = headrace("own", "release", "g", "t-0", "--evict", "--json", "--bootstrap", cluster.bootstrap)
        assert json.loads(done.stdout) == {"group": "g", "released": {"t-0": 2}}
        assert ownership.lost.wait(5)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("claim", "g"), "at least one resource"),
        (("claim", "g", "a", "a"), "each once"),
        (("claim", "g", ""), "at least one resource"),
        (("claim", "g", "a", "--wait", "--generation", "1"), "--wait or --generation"),
        (("claim", "g", "a", "--generation=-1"), "from 0 to 2147483647, not -1"),
        (("claim", "g", "a", "--generation", "2147483648"), "from 0 to 2147483647, not 2147483648"),
        (("watch", "--every", "soon"), "500ms or 2s"),
        (("release", "g"), "at least one resource"),
    ],
)
def test_what_is_asked_wrongly_is_said(arguments: tuple[str, ...], reason: str) -> None:
    done = headrace("own", *arguments, "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 2 and reason in done.said


def test_changes_are_told_once_each() -> None:
    def row(generation: int, name: str | None, refused: int = 0) -> dict[str, Any]:
        owner = None if name is None else {"client_id": name, "address": "h:1", "since_ms": 1}
        last = {"client_id": "x", "address": "h:2", "generation": 1, "wall_ms": refused} if refused else None
        return {"group": "g", "resource": "r", "generation": generation, "owner": owner, "refused": last}

    def between(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
        changes = own_list.changes(own_list.by_key(before), own_list.by_key(now))
        return [own_list.sentence(change).partition("  ")[2] for change in changes]

    assert between([], [row(1, "a")]) == ["r of group g is owned by a at h:1 at generation 1"]
    assert between([row(1, "a")], [row(1, "a")]) == []
    assert between([row(1, "a")], [row(2, "b")]) == ["r of group g is owned by b at h:1 at generation 2"]
    assert between([row(1, "a")], [row(1, None)]) == between([row(1, "a")], []) == ["r of group g is owned by nobody"]
    assert between([], [row(1, None)]) == ["r of group g is owned by nobody"]
    assert between([row(1, None)], []) == between([row(1, "a", 1_000_000)], [row(1, "a")]) == []
    (refused,) = between([row(1, "a")], [row(1, "a", 1_000_000)])
    assert refused.startswith("r of group g was refused to x at h:2, ")


def test_what_a_broker_told_stands_while_it_does_not_tell() -> None:
    """It hangs, or is slow: that is no news of its owners. When it is no part of the cluster any more, it is."""

    def row(name: str, node: int) -> dict[str, Any]:
        return {"node": node, "group": "g", "resource": name, "generation": 1, "owner": None, "refused": None}

    before = own_list.by_key([row("a", 1), row("b", 2), row("c", 2)])
    told = {3: [{key: value for key, value in row("c", 3).items() if key != "node"}]}
    assert own_list.seen(Told(told, {2: "no answer"}), before) == own_list.by_key([row("b", 2), row("c", 3)])
    assert own_list.seen(Told(told, {}), before) == own_list.by_key([row("c", 3)])


def test_a_broker_that_hangs_is_said_to_once_and_its_owners_are_not_told_as_gone() -> None:
    with Cluster({"broker.session.timeout.ms": "60000"}, brokers=2) as cluster:
        bootstrap = ("--bootstrap", cluster.bootstrap)
        assert headrace("topic", "create", "t", "--replication-factor", "1", *bootstrap).returncode == 0
        with own.claim_sync(cluster.bootstrap, "g", "t-0"), running("own", "watch", *bootstrap) as watching:
            watching.until("t-0 of group g is owned by")
            leader = cluster.leader("t", 0)
            assert leader is not None
            cluster.pause(leader)
            wait_until(lambda: f"node {leader} does not tell" in watching.said(), "it says who is silent")
            cluster.resume(leader)
            watching.end()
            assert [line for line in watching.lines() if "nobody" in line] == []
