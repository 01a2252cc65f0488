"""Apache Kafka as the reference: one combined broker and controller from the jars of `make kafka-jars`."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.servers.process import BrokerProcess, free_port

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
    port, controller_port = free_port(), free_port()
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
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
