"""kcat, the command line face of an older librdkafka."""

import subprocess
from collections.abc import Sequence

from tests.interop.clients.shape import GIVE_UP_S, Consumed


class Kcat:
    name = "kcat"
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(self, topic: str, partitions: int, values: Sequence[bytes], codec: str, *, idempotent: bool) -> None:
        """kcat chooses the partitions itself; the lines of one of its runs keep their order in each of them."""
        del partitions
        settings = ["-z", codec, "-X", f"enable.idempotence={str(idempotent).lower()}"]
        self._run("-P", "-t", topic, *settings, stdin=b"\n".join(values))

    def consume(self, topic: str, partitions: int, count: int) -> list[Consumed]:
        del partitions
        printed = self._run("-C", "-t", topic, "-o", "beginning", "-c", str(count), "-q", "-f", "%p\t%o\t%T\t%s\n")
        return [_consumed(line) for line in printed.splitlines()]

    def offsets_at(self, topic: str, partitions: int, timestamp_ms: int) -> list[int | None]:
        asked = [word for at in range(partitions) for word in ("-t", f"{topic}:{at}:{timestamp_ms}")]
        answers: dict[int, int] = {}
        for line in self._run("-Q", *asked).decode().splitlines():
            _, partition, _, offset = line.split()  # "topic [0] offset 17"
            answers[int(partition.strip("[]"))] = int(offset)
        return [answers[at] if answers[at] >= 0 else None for at in range(partitions)]

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        command = ["kcat", "-b", self.bootstrap, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=GIVE_UP_S, check=False)
        # One node of several that is down is an error for kcat, but does not keep it from its work.
        errors = [line for line in done.stderr.splitlines() if b"ERROR" in line and b"Connection refused" not in line]
        assert done.returncode == 0 and not errors, done.stderr.decode()
        return done.stdout


def _consumed(line: bytes) -> Consumed:
    partition, offset, timestamp_ms, value = line.split(b"\t", 3)
    return Consumed(int(partition), int(offset), int(timestamp_ms), value)
