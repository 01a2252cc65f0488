"""A client library of another language behind a small program of ours: one command per line in, one answer out."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self


class LineProgram:
    """Commands and answers are tab-separated; an answer begins with `ok` or `error`."""

    def __init__(self, command: list[str], log_path: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log_path = log_path
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )

    def ask(self, *words: object) -> list[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n").split("\t")
        log = self.log_path.read_text(errors="replace")
        assert answer[0] == "ok", f"{words[0]}: {answer}\n{log[-4000:]}"
        return answer[1:]

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
