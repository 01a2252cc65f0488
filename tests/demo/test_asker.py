"""Whoever asks a node asks it to the end, and what is no answer is noted."""

import time
from pathlib import Path
from typing import Self

import pytest

from demo import asker
from demo.asker import Asker
from demo.evidence import ToldEnd
from headrace.errors import ErrorCode
from tests.servers.caller import Told
from tests.servers.process import BrokerProcess

WAIT_S_MAX = 10.0


class Garbling:
    """A node whose first answer is none that anybody can read."""

    questions = 0

    def __init__(self, host: str, port: int, answer_s_max: float) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def latest(self, topic: str, partitions: int) -> dict[int, Told]:
        assert topic and partitions
        Garbling.questions += 1
        if Garbling.questions == 1:
            raise ValueError("this is no response")
        return {0: Told(ErrorCode.NONE, 7)}


def test_an_answer_that_cannot_be_read_is_noted_and_the_node_is_asked_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(asker, "Caller", Garbling)
    monkeypatch.setattr(asker, "PACE_S", 0.001)
    ends: list[ToldEnd] = []
    failures: list[str] = []
    one = Asker(2, BrokerProcess("Node 2", 1, [], tmp_path, tmp_path), ends, failures, time.monotonic)
    deadline = time.monotonic() + WAIT_S_MAX
    while not ends and time.monotonic() < deadline:
        time.sleep(0.01)
    one.finish()
    assert ends[0].offset == 7
    assert len(failures) == 1 and "node 2 gave no answer: ValueError('this is no response')" in failures[0]
