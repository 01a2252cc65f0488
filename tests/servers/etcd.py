"""A real etcd on the loopback, of one member or three: started, killed, paused and started again by tests."""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.servers.process import lasting_port

READY_S_MAX = 60.0


class EtcdMissing(RuntimeError):
    """There is no etcd to be had; the message says how to get it."""


def etcd_program() -> str:
    found = shutil.which("etcd")
    if found is None:
        raise EtcdMissing("the program etcd is missing: run `make etcd`")
    return found


class EtcdMember:
    def __init__(self, name: str, directory: Path, scheme: str, host: str, extra: Sequence[str]) -> None:
        self.name = name
        self.directory = directory
        self.port, self.peer_port = lasting_port(), lasting_port()
        self._scheme = scheme
        self._host = host
        self._extra = extra
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, initial_cluster: str) -> None:
        client, peer = f"{self._scheme}://{self.address}", f"http://127.0.0.1:{self.peer_port}"
        state = "existing" if self.directory.exists() else "new"
        command = [etcd_program(), "--name", self.name, "--data-dir", str(self.directory)]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", initial_cluster, "--initial-cluster-state", state]
        command += ["--initial-cluster-token", "headrace-test", "--logger", "zap", "--log-level", "warn"]
        # Its settings would also be taken from the environment.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD")}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._extra], stdout=log, stderr=log, env=environment, start_new_session=True
            )

    @property
    def log_path(self) -> Path:
        return self.directory.with_suffix(".log")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def is_leader(self) -> bool:
        status = self._status()
        return status is not None and bool(status.get("leader") == status["header"]["member_id"])

    def knows_a_leader(self) -> bool:
        status = self._status()
        return status is not None and status.get("leader", "0") != "0"

    def _status(self) -> dict[str, Any] | None:
        request = urllib.request.Request(f"http://{self.address}/v3/maintenance/status", b"{}")
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:
                status: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return None
        return status


class EtcdCluster:
    """Its members answer when the constructor is through. With TLS only the log tells: it is not waited for then."""

    def __init__(
        self,
        directory: Path,
        size: int = 1,
        scheme: str = "http",
        extra: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.members = [EtcdMember(f"n{n}", directory / f"n{n}", scheme, host, extra) for n in range(size)]
        self.initial = ",".join(f"{member.name}=http://127.0.0.1:{member.peer_port}" for member in self.members)
        try:
            for member in self.members:
                member.start(self.initial)
            if scheme == "http":
                self.wait_ready()
        except BaseException:  # no process may outlive the test, whatever ended it
            self.close()
            raise

    @property
    def addresses(self) -> list[str]:
        return [member.address for member in self.members]

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_S_MAX
        for member in self.members:
            while not member.knows_a_leader():
                if not member.is_running or time.monotonic() > deadline:
                    tail = "\n".join(member.log_path.read_text(errors="replace").splitlines()[-15:])
                    raise RuntimeError(f"etcd {member.name} does not answer: {tail}")
                time.sleep(0.02)

    def leader(self) -> EtcdMember:
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            for member in self.members:
                if member.is_running and member.is_leader():
                    return member
            time.sleep(0.02)
        raise RuntimeError("the etcd cluster elects no leader")

    def restart(self, member: EtcdMember) -> None:
        member.start(self.initial)
        self.wait_ready()

    def close(self) -> None:
        for member in self.members:
            if member.is_running:
                member.kill()
