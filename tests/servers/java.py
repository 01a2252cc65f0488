"""Programs on Apache Kafka's own client, from what `make kafka-jars` has compiled, and its tools."""

from pathlib import Path

from tests.servers.kafka import JARS, class_path

LOG4J = Path(__file__).parents[1] / "interop" / "java" / "log4j2.yaml"
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")
"""Options of a JVM that lives for seconds: it starts soon instead of compiling well, and says nothing of its own."""


def java(main: str, *arguments: str, memory: str = "256m") -> list[str]:
    """The command for a class of Kafka's, or of the tests'. What it logs goes to stderr."""
    programs = JARS.parent / "programs.jar"
    if not programs.exists():
        raise FileNotFoundError("the Java programs of the tests are not compiled: run `make kafka-jars`")
    kept = f"-XX:SharedArchiveFile={JARS.parent / 'classes.jsa'}"
    options = [f"-Xmx{memory}", *SHORT_LIVED, kept, f"-Dlog4j2.configurationFile={LOG4J}"]
    # In this order: Java takes what it has kept only if the class path begins as it did then.
    return ["java", *options, "-cp", f"{class_path()}:{programs}", main, *arguments]
