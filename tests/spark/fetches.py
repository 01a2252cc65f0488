"""What fetches ask of brokers in this process: whole lists of partitions, or what is new in a session."""

from typing import Any

import pytest

from headrace.core.fetch_sessions import FULL_EPOCHS, FetchSessions
from headrace.wire.messages.fetch import FetchRequest


class Fetches:
    def __init__(self) -> None:
        self.full = 0
        self.incremental = 0


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    counted = Fetches()
    receive = FetchSessions.receive

    def counting(self: FetchSessions, request: FetchRequest, *arguments: Any) -> Any:
        if request.session_epoch in FULL_EPOCHS:
            counted.full += 1
        else:
            counted.incremental += 1
        return receive(self, request, *arguments)

    monkeypatch.setattr(FetchSessions, "receive", counting)
    return counted
