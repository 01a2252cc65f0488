"""Apache Kafka as the reference, from the jars of `make kafka-jars`: nodes that are broker and controller in one."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.servers.process import BrokerProcess, lasting_port

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".tools" / "kafka" / "libs"
CLUSTER_ID = "aGVhZHJhY2UtYW5jaG9yLQ"
# The options of Kafka's own start script.
JVM_OPTIONS = (
    "-Xms1G -Xmx1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
    " -XX:+ExplicitGCInvokesConcurrent"
)
LOG4J = """\
Configuration:
  Appenders:
    Console: {name: console, PatternLayout: {pattern: "%d %p %c %m%n"}}
  Loggers:
    Root: {level: warn, AppenderRef: [{ref: console}]}
"""


def class_path() -> str:
    if not JARS.is_dir():
        raise FileNotFoundError("Apache Kafka's jars are missing: run `make kafka-jars`")
    return f"{JARS}/*"


def kafka_broker(directory: Path, settings: Mapping[str, str] | None = None) -> BrokerProcess:
    """Formats the directory when it is new."""
    return _kafka_node(directory, 1, {1: _Ports(lasting_port(), lasting_port())}, settings or {})


def kafka_nodes(directory: Path, count: int, settings: Mapping[str, str] | None = None) -> list[BrokerProcess]:
    """A cluster of so many nodes, each a broker and a controller."""
    ports = {node_id: _Ports(lasting_port(), lasting_port()) for node_id in range(1, count + 1)}
    return [_kafka_node(directory / f"node-{node_id}", node_id, ports, settings or {}) for node_id in ports]


class _Ports(NamedTuple):
    broker: int
    controller: int


def _kafka_node(
    directory: Path, node_id: int, ports: Mapping[int, _Ports], settings: Mapping[str, str]
) -> BrokerProcess:
    port, controller_port = ports[node_id]
    copies, isr_min = ("3", "2") if len(ports) >= 3 else ("1", "1")
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{its.controller}" for voter, its in ports.items()),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": isr_min,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": isr_min,
        "group.initial.rebalance.delay.ms": "0",
        **settings,
    }
    directory.mkdir(parents=True, exist_ok=True)
    properties_path, log4j_path = directory / "server.properties", directory / "log4j2.yaml"
    properties_path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    log4j_path.write_text(LOG4J)
    java = ["java", "-cp", class_path(), f"-Dlog4j2.configurationFile={log4j_path}"]
    if not (directory / "data" / "meta.properties").exists():
        formatting = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties_path)]
        subprocess.run(formatting, check=True, stdout=subprocess.DEVNULL)
    return BrokerProcess(
        name="Apache Kafka",
        port=port,
        command=[java[0], *JVM_OPTIONS.split(), *java[1:], "kafka.Kafka", str(properties_path)],
        partitions=directory / "data",
        log_path=directory / "broker.log",
    )
