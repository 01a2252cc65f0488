import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from headrace.cli import watch
from headrace.cli.watch import watched
from tests.cli.programs import PATIENCE_S, PROGRAM, headrace, running_up, wait_until


class Troubled:
    def __init__(self) -> None:
        self.trouble: str | None = None

    async def reach(self, timeout_ms: int) -> None:
        pass


def test_trouble_is_told_once_when_it_lasts_and_once_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "LOOK_S", 0.001)

    async def run() -> None:
        client = Troubled()
        async with watched(client, "writing"):
            client.trouble = "the disk is full"
            await asyncio.sleep(0.05)
            client.trouble = None
            await asyncio.sleep(0.05)  # it did not last
            monkeypatch.setattr(watch, "PATIENCE_S", 0.01)
            for trouble in ("the disk is full", "and still is", None):
                client.trouble = trouble
                await asyncio.sleep(0.1)

    asyncio.run(run())
    assert capsys.readouterr().err.splitlines() == [
        "headrace: writing is held up, and tried again: the disk is full",
        "headrace: writing goes on",
    ]


def test_who_writes_and_who_reads_is_told_that_the_broker_went_and_came_back(tmp_path: Path) -> None:
    with running_up(tmp_path) as up:
        to = ("--bootstrap", up.bootstrap)
        assert headrace("topic", "create", "t", *to).returncode == 0
        files = [tmp_path / name for name in ("writer", "reader")]
        with files[0].open("wb") as writing, files[1].open("wb") as reading:
            writer = subprocess.Popen([PROGRAM, "produce", "t", *to], stdin=subprocess.PIPE, stderr=writing)
            reader = subprocess.Popen(
                [PROGRAM, "consume", "t", "--follow", "--count", "2", *to], stdout=subprocess.PIPE, stderr=reading
            )
        assert writer.stdin is not None and reader.stdout is not None
        os.write(writer.stdin.fileno(), b"before\n")
        assert reader.stdout.readline() == b"before\n"
        os.kill(up.pid, signal.SIGKILL)
        os.write(writer.stdin.fileno(), b"after\n")
        for file, what in zip(files, ("writing to t", "reading t"), strict=True):
            wait_until(lambda file=file: file.read_text(), "it is told")  # type: ignore[misc]  # of a loop's variable
            assert file.read_text().startswith(f"headrace: {what} is held up, and tried again: ")
            assert up.bootstrap in file.read_text()
        with (tmp_path / "again").open("wb") as log:
            again = subprocess.Popen(up.node["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            writer.communicate(timeout=PATIENCE_S)
            assert (writer.returncode, reader.wait(PATIENCE_S)) == (0, 0)
            assert reader.stdout.read() == b"after\n"
        finally:
            again.terminate()
            again.wait(PATIENCE_S)
            reader.stdout.close()
        said = [file.read_text().splitlines() for file in files]
        assert said[0][1:] == ["headrace: writing to t goes on", *said[0][2:]]
        assert said[1][1:] == ["headrace: reading t goes on"]
