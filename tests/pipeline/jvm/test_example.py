"""The notebook does what it says, cell after cell."""

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.servers.process import BrokerProcess

NOTEBOOK = Path(__file__).parents[3] / "examples" / "spark" / "orders_notebook.py"


def test_the_notebook_runs_twice_and_draws_its_plots(
    spark: SparkSession,
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark is not None, "the notebook finds the session that there is"
    for name, value in (
        ("HEADRACE_BOOTSTRAP", broker.bootstrap),
        ("ORDERS_TOPIC", "notebook"),
        ("ORDERS_FOLDER", str(tmp_path)),
        ("ORDERS", "300"),
    ):
        monkeypatch.setenv(name, value)
    ran = runpy.run_path(str(NOTEBOOK))
    assert (ran["result"].rows, ran["result"].dead_letters, ran["rows"].num_rows) == (297, 3, 297)
    assert "3 records: it is no JSON of the schema" in capsys.readouterr().out
    for name in ("turnover", "countries", "speed"):
        svg = (tmp_path / "orders-plots" / f"{name}.svg").read_text()
        assert svg.startswith("<svg") and svg.count("<rect") > 3
    again = runpy.run_path(str(NOTEBOOK))
    assert (again["result"].rows, again["rows"].num_rows) == (297, 594)
