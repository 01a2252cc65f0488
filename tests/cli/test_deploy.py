"""What deploy/ holds is what the programs that read it take."""

import inspect
import re
import shlex
import shutil
import string
import subprocess
from pathlib import Path

import pytest

from headrace.cli import quick
from headrace.cli.serve import serve
from headrace.cli.values import absolute_metadata, parse_address
from headrace.cli.withdraw import withdraw
from headrace.config import BrokerConfig
from headrace.storage.properties import parse_properties
from tests.cli.programs import PROGRAM

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
INSTALLED = "/opt/headrace/bin/headrace"


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here to verify deploy/headrace.service with")
    unit = tmp_path / "headrace.service"
    unit.write_text((DEPLOY / "headrace.service").read_text().replace(INSTALLED, PROGRAM))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def command_of(setting: str) -> list[str]:
    """As systemd runs it: a variable in braces is one word, even an empty one."""
    (line,) = re.findall(rf"^{setting}=-?(.*)$", (DEPLOY / "headrace.service").read_text(), re.MULTILINE)
    variables = parse_properties((DEPLOY / "node.env").read_text())
    return [string.Template(word).substitute(variables) for word in shlex.split(line)]


def test_the_unit_runs_commands_that_there_are() -> None:
    program, command, *options = command_of("ExecStart")
    assert (program, command) == (INSTALLED, "serve")
    values = quick.read(inspect.signature(serve), options)
    assert values is not None
    for name in ("listen", "advertise", "metrics"):
        parse_address(values[name], name)
    assert absolute_metadata(values["metadata"]) == values["metadata"]
    assert values["config"] == "/etc/headrace/node.properties"
    program, *words = command_of("ExecStopPost")
    assert (program, words[:2]) == (INSTALLED, ["node", "withdraw"])
    withdrawing = quick.read(inspect.signature(withdraw), words[2:])
    assert withdrawing == {"data": values["data"], "metadata": values["metadata"]}


def test_every_start_of_the_unit_sees_the_same_mounts() -> None:
    """Else a node that was killed takes its page cache for lost."""
    unit = (DEPLOY / "headrace.service").read_text()
    private = r"^(Protect(?:System|Home|Kernel|ControlGroups|Proc)|Private(?:Tmp|Devices|Mounts)|DynamicUser|\w+Paths)"
    assert re.findall(private, unit, re.MULTILINE) == []


def test_the_settings_are_ones_that_there_are() -> None:
    settings = parse_properties((DEPLOY / "node.properties").read_text())
    config = BrokerConfig.parse(settings)
    assert (config.default_replication_factor, config.min_insync_replicas) == (3, 2)


def test_the_etcd_of_the_documentation_has_options_that_there_are_and_forgets_what_is_old() -> None:
    names = re.findall(r"^ETCD_(\w+)=", (DEPLOY.parent / "docs" / "DEPLOYING.md").read_text(), re.MULTILINE)
    options = ["--" + name.lower().replace("_", "-") for name in names]
    for text in (" ".join(options), (DEPLOY / "compose.yaml").read_text()):
        assert "--auto-compaction-mode" in text and "--auto-compaction-retention" in text
    etcd = shutil.which("etcd")
    if etcd is None:
        pytest.skip("there is no etcd here that knows its options")
    known = subprocess.run([etcd, "--help"], capture_output=True, text=True, timeout=60)
    assert set(options) <= set(re.findall(r"--[a-z-]+", known.stdout + known.stderr))


def test_the_compose_file_says_first_that_nobody_has_tried_it() -> None:
    lines = (DEPLOY / "compose.yaml").read_text().splitlines()
    assert lines[0] == "# untested here"
    named = {"--" + name.replace("_", "-") for name in inspect.signature(serve).parameters} | {"--set"}
    _, _, nodes = "\n".join(lines).partition("  node1:\n")
    options = re.findall(r"- (--[a-z-]+)=", nodes)
    assert len(options) == 3 * 7
    assert set(options) <= named
