"""The documents say what is there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import __version__
from headrace.metadata import records
from headrace.testing import Cluster
from headrace.wire.apis import APIS
from tools import compatibility, file_map

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
SCREEN_LINES = 25


def test_the_compatibility_page_is_fresh() -> None:
    assert compatibility.PAGE.read_text() == compatibility.page(), "run make docs"


def test_the_compatibility_page_has_every_api() -> None:
    page = compatibility.page()
    for key, api in APIS.items():
        assert f"| {key} | {api.name} |" in page


def test_the_map_is_fresh() -> None:
    page = file_map.PAGE.read_text()
    assert page == file_map.with_map(page), "run make docs"


def test_the_map_has_every_file_that_holds_something() -> None:
    shown = file_map.file_map()
    for path in file_map.SOURCE.rglob("*.py"):
        if path.read_text().strip():
            assert f"- `{path.name}` " in shown, f"{path.name} needs a docstring that says what it is for"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_first_screen_of_promises_says_what_each_acknowledgement_is_worth() -> None:
    first_screen = (ROOT / "docs" / "PROMISES.md").read_text().splitlines()[:SCREEN_LINES]
    for word in ("`acks=0`", "`acks=1`", "`acks=all`", "fsync", "crash", "power cut"):
        assert any(word in line for line in first_screen), word


def test_whoever_shares_an_etcd_is_told_every_key_that_is_ours() -> None:
    page = (ROOT / "docs" / "DEPLOYING.md").read_text()
    keys = [key.decode() for key in vars(records).values() if isinstance(key, bytes) and key.startswith(b"/")]
    assert "/p/" in keys
    for key in keys:
        first = re.match(r"/\w+/?", key)
        assert first is not None and f"`{first[0]}`" in page, key


def test_the_readme_begins_with_three_commands() -> None:
    commands = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands[:3] == ["demo", "up", "test"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def run_block(naming: str, bootstrap: str) -> list[str]:
    """What the block of commands of the README that names this prints."""
    (block,) = [block for block in blocks("sh") if naming in block]
    environment = {
        **os.environ,
        "HEADRACE_BOOTSTRAP": bootstrap,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_commands_of_the_readme_work(headrace_cluster: Cluster) -> None:
    lines = run_block("headrace consume", headrace_cluster.bootstrap)
    assert lines[1] == "hello"
    assert [json.loads(line)["topic"] for line in lines[2:]] == ["orders"] * 3


def test_the_commands_of_the_readme_for_a_cluster_work() -> None:
    with Cluster(brokers=3) as cluster:
        lines = run_block("headrace cluster status", cluster.bootstrap)
    assert lines[-1] == "6 partitions: 0 without leader, 0 under-replicated, 0 guarded, 0 failed"


@pytest.mark.parametrize("block", [block for block in blocks("python") if "pyspark" not in block])
def test_the_python_of_the_readme_works(
    headrace_cluster: Cluster, block: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What needs Spark is run where there is a session, beside the guide to it."""
    exec(block.replace("127.0.0.1:9092", headrace_cluster.bootstrap), {})
    assert capsys.readouterr().out


def test_every_command_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = re.findall(r"`make ([a-z]+)|^make ([a-z]+)", page.read_text(), re.MULTILINE)
        assert {first or second for first, second in named} <= targets, page.name


def test_the_version_is_the_same_everywhere() -> None:
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()
