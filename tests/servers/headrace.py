"""Headrace as a user starts it: `headrace serve`."""

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.servers.process import BrokerProcess, lasting_port


def headrace_broker(directory: Path, settings: Mapping[str, str] | None = None) -> BrokerProcess:
    directory.mkdir(parents=True, exist_ok=True)
    port, metrics_port = lasting_port(), lasting_port()
    program = Path(sys.executable).with_name("headrace")
    command = [str(program), "serve", "--node-id", "1", "--listen", f"127.0.0.1:{port}"]
    command += ["--data", str(directory / "data"), "--metadata", f"sqlite:{directory / 'metadata.db'}"]
    command += ["--metrics", f"127.0.0.1:{metrics_port}"]
    for key, value in (settings or {}).items():
        command += ["--set", f"{key}={value}"]
    return BrokerProcess(
        name="Headrace",
        port=port,
        command=command,
        partitions=directory / "data" / "logs",
        log_path=directory / "broker.log",
        metrics_port=metrics_port,
    )
