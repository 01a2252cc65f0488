"""What holds for every command."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import headrace.cli as headrace_cli
from headrace import __version__
from headrace.cli import watch
from headrace.cli.commands import COMMANDS
from tests.cli.programs import PATIENCE_S, PROGRAM, headrace, headrace_process, wait_until

LEAVES = [path.split() for path in COMMANDS]
NODE = ["serve", "--listen", "127.0.0.1:0", "--data", "d", "--metadata", "sqlite:m"]


def test_the_help_names_every_command_and_shows_examples() -> None:
    done = headrace("--help")
    text = done.stdout.decode()
    assert done.returncode == 0
    assert all(f" {leaf[0]} " in text for leaf in LEAVES)
    assert "Examples:" in text
    assert "headrace up" in text


@pytest.mark.parametrize("command", LEAVES, ids=" ".join)
def test_every_command_has_help_with_examples_and_json(command: list[str]) -> None:
    done = headrace(*command, "--help")
    text = done.stdout.decode()
    assert done.returncode == 0
    assert f"Usage: headrace {' '.join(command)}" in text
    assert f"\n  headrace {' '.join(command)}" in text.partition("Examples:")[2]
    assert "--json" in text
    assert ("--bootstrap" in text) == (command not in (["up"], ["serve"], ["sim"], ["node", "withdraw"]))


def test_the_version_is_printed() -> None:
    done = headrace("--version")
    assert (done.returncode, done.stdout.decode().strip()) == (0, __version__)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fly"], 'Unknown command "fly"'),
        (["topic", "fly"], "fly"),
        (["consume"], "TOPIC requires an argument"),
        (["consume", "t", "--bogus"], "--bogus"),
        (["consume", "t", "--count", "many"], "--count"),
        (["consume", "t", "--from", "yesterday"], "--from takes beginning, end"),
        (["consume", "t", "--format", "xml"], "--format"),
        (["produce", "t", "--rate", "5"], "--rate is for made-up records"),
        (["produce", "t", "--count", "5", "--rate", "nan"], "--count and --rate are positive"),
        (["produce", "t", "--count", "5", "--rate", "inf"], "--count and --rate are positive"),
        (["produce", "t", "--acks", "2"], "--acks"),
        (["produce", "t", "--size", "big", "--count", "1"], "--size takes a number of bytes"),
        (["produce", "t", "f", "--count", "1"], "give a file, or --count"),
        (["topic", "create", "t", "--set", "retention.ms"], "--set takes key=value"),
        (["topic", "alter", "t"], "nothing to alter"),
        (["topic", "list", "--bootstrap", "nowhere"], "HOST:PORT"),
        (["serve", "--node-id", "1"], "requires an argument"),
        ([*NODE, "--node-id=-1"], "--node-id is a number from 0"),
        ([*NODE, "--node-id", "9" * 12], "--node-id is a number from 0"),
        (["up", "--port", "9" * 5_000], "--port"),
        (["up", "--data", ""], "--data takes a directory"),
        (["up", "--brokers", "0"], "--brokers takes a number from 1"),
        (["up", "--brokers", "3", "--port", "65534"], "--port 65534 leaves no room for 3 brokers"),
        ([*NODE, "--node-id", "1", "--await-nodes=0"], "--await-nodes takes a number above zero"),
        (["node", "withdraw", "--data", "d", "--metadata", "etcd:"], "--metadata takes sqlite:FILE or etcd://"),
        (["node", "withdraw", "--data", "d", "--metadata", "etcd://,"], "--metadata takes sqlite:FILE or etcd://"),
        (["cluster", "elect", "--type", "unclean"], "give --topic too"),
        (["cluster", "elect", "--partition", "0"], "give --topic too"),
        (["cluster", "elect", "--type", "fair"], "--type"),
        (["up", "--data", "one,two"], "may have no comma in its path"),
        (["consume", "t", "--key-separator", "\udcff"], "is not UTF-8"),
    ],
)
def test_what_is_asked_wrongly_is_a_sentence_and_exit_code_2(arguments: list[str], sentence: str) -> None:
    done = headrace(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.said.startswith("headrace: ")
    assert sentence in done.stderr.decode()


@pytest.mark.parametrize("command", [["topic", "list"], ["consume", "t"], ["produce", "t"], ["topic", "delete", "t"]])
def test_a_cluster_that_is_not_there_is_a_sentence_and_exit_code_1(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FIRST_CONTACT_MS_MAX", 150)
    done = headrace(*command, "--bootstrap", "127.0.0.1:1", stdin=b"line\n")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.said == (
        "headrace: no broker of bootstrap 127.0.0.1:1 answers: cannot connect to 127.0.0.1:1: Connection refused"
    )


def test_a_file_that_is_not_there_is_a_sentence_and_exit_code_1() -> None:
    done = headrace("produce", "t", "no-such-file")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.said == "headrace: no-such-file: No such file or directory"


@pytest.mark.parametrize("command", ["serve", "up"])
def test_what_must_be_ready_at_once_loads_nothing_heavy(command: str) -> None:
    code = f"import sys, headrace.cli.quick as quick; quick.find(['{command}']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert f"headrace.cli.{command}" in loaded
    assert not loaded & {"cyclopts", "rich", "headrace.client", "headrace.testing", "pytest", "hypothesis"}
    if command == "up":
        assert not loaded & {"asyncio", "headrace.node"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--version"], 0), (["produce", "t", "no-such-file"], 1), (["consume"], 2)],
)
def test_the_installed_command_ends_with_the_same_codes(arguments: list[str], code: int) -> None:
    assert headrace_process(*arguments).returncode == code


def test_python_m_headrace_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "headrace", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_lead_nowhere(closed: str, tmp_path: Path, bootstrap: str) -> None:
    command = f"{PROGRAM} produce closed-streams --bootstrap {bootstrap} {closed}"
    errors = tmp_path / "errors"
    with errors.open("wb") as log:
        done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    assert done.returncode == 0
    assert "Traceback" not in errors.read_text()


def test_help_that_nobody_reads_to_its_end_is_no_failure() -> None:
    script = f"{PROGRAM} produce --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_output_that_cannot_be_written_is_a_sentence(bootstrap: str) -> None:
    command = [PROGRAM, "topic", "list", "--json", "--bootstrap", bootstrap]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, b"headrace: standard output: No space left on device\n")


def test_an_interrupt_while_the_program_is_loaded_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(headrace_cli, "_main", interrupted)
    done = headrace("topic", "list")
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_an_interrupt_of_a_command_is_exit_code_1_without_a_traceback(bootstrap: str) -> None:
    command = [PROGRAM, "produce", "interrupted", "--count", "1000000", "--rate", "100", "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        listed = ("topic", "list", "--json", "--bootstrap", bootstrap)
        wait_until(lambda: b'"interrupted"' in headrace(*listed).stdout, "it has begun")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (1, b"headrace: interrupted\n")


def test_a_process_that_used_the_library_of_stores_does_not_wait_for_its_threads_to_call_back() -> None:
    script = (
        "import atexit, sys; sys.modules['obstore'] = sys; atexit.register(print, 'the interpreter ended');"
        "sys.argv = ['headrace', '--version']; from headrace.cli import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith(__version__), done
    assert "the interpreter ended" not in done.stdout
