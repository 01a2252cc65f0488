"""A standalone Spark cluster on the loopback, made of what pip installs: a master and two workers."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.servers.process import lasting_port

READY_S_MAX = 240.0
ARCHIVE = Path(__file__).resolve().parents[2] / ".tools" / "spark" / "classes.jsa"
JAVA = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:SharedArchiveFile={ARCHIVE}"
"""Options of all of Spark's JVMs: what lives for seconds is not to be compiled well, but to start soon."""

HOME = Path(pyspark.__file__).parent
SUBMIT = str(HOME / "bin" / "spark-submit")
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


@contextmanager
def standalone(directory: Path, cores: int = 1) -> Iterator[str]:
    """The URL of its master, once both workers are registered, with so many cores each."""
    directory.mkdir(parents=True, exist_ok=True)
    port, log = lasting_port(), directory / "master.log"
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
    }
    processes: list[subprocess.Popen[bytes]] = []

    def launch(name: str, *arguments: str) -> None:
        with (directory / f"{name}.log").open("wb") as output:
            command = [str(HOME / "bin" / "spark-class"), *arguments]
            processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    start_new_session=True,
                )
            )

    url = f"spark://127.0.0.1:{port}"
    try:
        launch("master", MASTER, "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        _until(log, 1, "I have been elected leader|Starting Spark master")
        for number in (1, 2):
            work = directory / f"work-{number}"
            size = ("--cores", str(cores), "--memory", f"{cores}g", "--work-dir", str(work), "--webui-port", "0")
            # Spark never runs a task twice at the same time on one host: so there are two.
            launch(f"worker-{number}", WORKER, "--host", f"127.0.0.{number}", *size, url)
        _until(log, 2, "Registering worker")
        yield url
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _until(log: Path, times: int, what: str) -> None:
    deadline = time.monotonic() + READY_S_MAX
    while len(re.findall(what, log.read_text(errors="replace") if log.exists() else "")) < times:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)
