"""Processes of Spark in which we are asked again and again keep what they have loaded out of the collector's sight."""

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from itertools import count

import pytest

from headrace.spark import worker_memory
from headrace.spark.data_source import HeadraceDataSource
from headrace.spark.door import Door
from headrace.spark.schema import source_schema

SOURCE = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


@pytest.fixture
def spark_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(worker_memory.WORKERS_PROGRAM, None))
    monkeypatch.setattr(worker_memory, "_tasks", count())
    monkeypatch.setattr(worker_memory, "_keep_blocks", lambda: None)
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("spark_process")
def test_whoever_plans_a_read_is_not_looked_through_after_each() -> None:
    HeadraceDataSource(SOURCE).reader(source_schema(False))
    assert gc.get_freeze_count() > 0


@pytest.mark.usefixtures("spark_process")
def test_what_comes_later_is_collected() -> None:
    for _ in range(2):
        HeadraceDataSource(SOURCE).schema()
    kept = gc.get_freeze_count()
    for _ in range(5):
        HeadraceDataSource(SOURCE).schema()
    assert gc.get_freeze_count() <= kept


def test_elsewhere_nothing_is_kept() -> None:
    gc.unfreeze()
    HeadraceDataSource(SOURCE).reader(source_schema(False))
    assert gc.get_freeze_count() == 0


def test_the_faster_loop_is_taken_where_it_is_installed() -> None:
    door = Door()
    assert type(door._loop).__module__.startswith("uvloop")
    assert door.call(lambda: 7) == 7
    door._loop.call_soon_threadsafe(door._loop.stop)
    door._thread.join(30)
    door._loop.close()
