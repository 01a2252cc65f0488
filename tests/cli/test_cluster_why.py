"""`headrace cluster why` as people read it."""

from typing import Any

import pytest

from headrace.cli import cluster_why

TOLD: dict[str, Any] = {
    "topic": "t",
    "partition": 0,
    "leader": 1,
    "because": "it is the first replica",
    "held_back": False,
    "threshold_ms": 1_000,
    "threshold_bytes": None,
    "report_interval_ms": 30_000,
    "replicas": [],
}


def test_how_old_it_may_be_is_said_where_it_matters(capsys: pytest.CaptureFixture[str]) -> None:
    cluster_why._show({**TOLD, "tiered": True})
    assert "a change takes up to 30 s, and mere growth is not told" in capsys.readouterr().out
    cluster_why._show({**TOLD, "tiered": False})
    assert "takes up to" not in capsys.readouterr().out
