"""A broker in a process of its own, whichever program it is: started, watched, killed and started again."""

import fcntl
import itertools
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
READY_S_MAX = 300.0
STOP_S_MAX = 60.0
LASTING_PORTS = range(15_000, 32_000)
PORTS_PER_PROCESS = 500


class BrokerFailed(RuntimeError):
    """The broker ended, or did not answer in time; the message ends with the tail of its log."""


def lasting_port() -> int:
    """For a server that is started in a moment, or goes away and comes back: below the ports that the system gives to
    clients in the meantime, and never one that another process of tests takes while the server is down."""
    while True:
        port = next(_ports())
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


@cache
def _ports() -> Iterator[int]:
    """The ports of this process, again and again. Which they are is said by a file that it keeps locked until it ends:
    other processes take those of another file."""
    directory = Path(tempfile.gettempdir(), f"headrace-test-ports-{os.getuid()}")
    directory.mkdir(exist_ok=True)
    for first in LASTING_PORTS[::PORTS_PER_PROCESS]:
        file = os.open(directory / str(first), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        return itertools.cycle(range(first, first + PORTS_PER_PROCESS))
    raise RuntimeError(f"{len(LASTING_PORTS) // PORTS_PER_PROCESS} processes of tests are running: wait for one to end")


def lists_itself(port: int, host: str = "127.0.0.1") -> bool:
    """Whether Metadata v1 (no topics) is answered with at least one broker: only then can clients use it."""
    request = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb").read(12)
    except OSError:
        return False
    return len(answer) == 12 and int.from_bytes(answer[8:12], "big") > 0


@dataclass
class BrokerProcess:
    """One broker. `partitions` is the directory that holds `<topic>-<partition>` directories."""

    name: str
    port: int
    command: list[str]
    partitions: Path
    log_path: Path
    metrics_port: int | None = None
    host: str = "127.0.0.1"
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker was not started"
        return self.process.pid

    def start(self) -> float:
        """Returns the seconds from exec to the first useful answer."""
        began = time.monotonic()
        self.launch()
        self.wait_ready()
        return time.monotonic() - began

    def launch(self) -> None:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,  # a Ctrl-C for the tests is not one for the broker: the fixture stops it
            )

    def wait_ready(self) -> None:
        assert self.process is not None, "the broker was not started"
        deadline = time.monotonic() + READY_S_MAX
        while not lists_itself(self.port, self.host):
            if self.process.poll() is not None:
                raise BrokerFailed(f"{self.name} ended with {self.process.returncode}: {self.log_tail()}")
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{self.name} did not answer in {READY_S_MAX:.0f} s: {self.log_tail()}")
            time.sleep(0.01)

    def signal(self, number: int) -> None:
        assert self.process is not None, "the broker was not started"
        self.process.send_signal(number)

    def stop(self) -> int:
        """SIGTERM; returns the exit status. A broker that does not end is killed and reported."""
        if self.process is None:
            return 0
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """For a broker that was told to end, or is to end by itself."""
        assert self.process is not None, "the broker was not started"
        try:
            return self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"{self.name} did not stop in {STOP_S_MAX:.0f} s: {self.log_tail()}") from None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def cpu_s(self) -> float:
        """User and system time of the whole process so far, in the kernel's ticks of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        return "\n".join(self.log_text().splitlines()[-15:]) or "(its log is empty)"
