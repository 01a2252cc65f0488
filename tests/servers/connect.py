"""A worker of Kafka Connect in distributed mode, from the jars of `make connect`."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.servers.process import lasting_port

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".tools" / "connect" / "libs"
ANSWER_S_MAX = 30.0
LOG4J = """\
Configuration:
  Appenders:
    Console: {name: console, target: SYSTEM_ERR, PatternLayout: {pattern: "%d %p %c{1} %m%n"}}
  Loggers:
    Root: {level: warn, AppenderRef: [{ref: console}]}
"""


class ConnectWorker:
    """Started, killed and started again; its state is in the topics of the cluster."""

    def __init__(self, directory: Path, bootstrap: str, copies: int) -> None:
        if not JARS.is_dir():
            raise FileNotFoundError("Kafka Connect's jars are missing: run `make connect`")
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "worker.log"
        self._properties = directory / "worker.properties"
        self._log4j = directory / "log4j2.yaml"
        self._log4j.write_text(LOG4J)
        self._port = lasting_port()
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "listeners": f"http://127.0.0.1:{self._port}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "offset.storage.partitions": "3",
            "status.storage.partitions": "1",
        }
        for kind in ("config", "offset", "status"):
            settings[f"{kind}.storage.topic"] = f"connect-{kind}"
            settings[f"{kind}.storage.replication.factor"] = str(copies)
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def start(self) -> None:
        options = ["-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = ["java", *options, f"-Dlog4j2.configurationFile={self._log4j}", "-cp", f"{JARS}/*"]
        command += ["org.apache.kafka.connect.cli.ConnectDistributed", str(self._properties)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ, start_new_session=True
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-40:]) if self._log.exists() else ""

    def put(self, connector: str, settings: Mapping[str, str]) -> bool:
        """Makes or changes a connector. False while the worker cannot: it is starting, or its group rebalances."""
        return self._ask("PUT", f"/connectors/{connector}/config", dict(settings)) is not None

    def is_running(self, connector: str) -> bool:
        """Itself and all of its tasks."""
        status = self._ask("GET", f"/connectors/{connector}/status")
        if not isinstance(status, dict):
            return False
        states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
        assert "FAILED" not in states, f"{status}\n{self.log_tail()}"
        return len(states) > 1 and set(states) == {"RUNNING"}

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S_MAX) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in (404, 409, 500, 503):
                    raise AssertionError(f"{error.code}: {error.read().decode()}") from error
            return None
        except OSError:
            assert self._process is not None and self._process.poll() is None, self.log_tail()
            return None

    def until_running(self, connector: str, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not self.is_running(connector):
            assert time.monotonic() < deadline, f"{connector} does not run\n{self.log_tail()}"
            time.sleep(0.2)
