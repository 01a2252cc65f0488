"""The Java client, through Interop.java."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop.clients.line_program import LineProgram
from tests.interop.clients.shape import Consumed
from tests.servers.java import java


class Java:
    name = "java"
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, program: LineProgram, scratch: Path) -> None:
        self.program = program
        self.scratch = scratch

    @staticmethod
    def start(bootstrap: str, scratch: Path) -> LineProgram:
        return LineProgram(java("Interop", bootstrap, memory="512m"), scratch / "java.log")

    def produce(self, topic: str, partitions: int, values: Sequence[bytes], codec: str, *, idempotent: bool) -> None:
        path = self.scratch / f"{topic}.values"
        path.write_bytes(b"\n".join(values))
        self.program.ask("produce", topic, partitions, path, codec, str(idempotent).lower())

    def consume(self, topic: str, partitions: int, count: int) -> list[Consumed]:
        path = self.scratch / f"{topic}.consumed"
        self.program.ask("consume", topic, partitions, count, path)
        lines = (line.split(b"\t", 3) for line in path.read_bytes().splitlines())
        return [Consumed(int(partition), int(offset), int(at), value) for partition, offset, at, value in lines]

    def offsets_at(self, topic: str, partitions: int, timestamp_ms: int) -> list[int | None]:
        (answer,) = self.program.ask("offsets", topic, partitions, timestamp_ms)
        return [int(word) if int(word) >= 0 else None for word in answer.split(",")]

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str], copies: int = 1) -> None:
        self.program.ask("create", topic, partitions, copies, *(f"{key}={value}" for key, value in configs.items()))

    def delete_topic(self, topic: str) -> None:
        self.program.ask("delete", topic)

    def churn(self, topic: str, partitions: int, rounds: int, seed: int) -> int:
        (read,) = self.program.ask("churn", topic, partitions, rounds, seed)
        return int(read)
