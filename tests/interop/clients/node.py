"""kafkajs, through interop.js."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop.clients.line_program import LineProgram

ROOT = Path(__file__).resolve().parents[3]
MODULES = ROOT / ".tools" / "node" / "node_modules"
SCRIPT = Path(__file__).with_name("interop.js")


class KafkaJs:
    name = "kafkajs"
    # gzip is built in; the others are its documented plug-in codecs.
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, program: LineProgram, scratch: Path) -> None:
        self.program = program
        self.scratch = scratch

    @staticmethod
    def start(bootstrap: str, scratch: Path) -> LineProgram:
        assert MODULES.is_dir(), "kafkajs is missing: run `make kafkajs`"
        return LineProgram(["node", str(SCRIPT), str(MODULES), bootstrap], scratch / "kafkajs.log")

    def produce(self, topic: str, partitions: int, values: Sequence[bytes], codec: str, *, idempotent: bool) -> None:
        path = self.scratch / f"{topic}.values"
        path.write_bytes(b"\n".join(values))
        self.program.ask("produce", topic, partitions, path, codec, str(idempotent).lower())

    def offsets_at(self, topic: str, partitions: int, timestamp_ms: int) -> list[int | None]:
        """kafkajs answers with the end of the log where there is no such record."""
        offsets, ends = ([int(word) for word in answer.split(",")] for answer in self._offsets(topic, timestamp_ms))
        assert len(offsets) == partitions
        return [offset if offset < end else None for offset, end in zip(offsets, ends, strict=True)]

    def _offsets(self, topic: str, timestamp_ms: int) -> list[str]:
        return self.program.ask("offsets", topic, timestamp_ms)

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str], copies: int = 1) -> None:
        self.program.ask("create", topic, partitions, copies, *(f"{key}={value}" for key, value in configs.items()))

    def delete_topic(self, topic: str) -> None:
        self.program.ask("delete", topic)
