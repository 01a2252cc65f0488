"""Steps that are taken in another process: what they give, what they raise, and that nothing outlives them."""

import os
import pickle
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from headrace.runtime import Apart, BesideLoop, StepsLost
from headrace.storage.log_config import LogConfig
from headrace.storage.opening import open_log
from headrace.storage.os_files import OsFiles
from headrace.storage.shared import Shared
from headrace.system import ProcessApart
from tests.storage.batches import TOPIC_ID
from tests.storage.compacting import begun, keyed, records_in, roll, run


@pytest.fixture(params=[BesideLoop, ProcessApart])
def apart(request: pytest.FixtureRequest) -> Iterator[Apart]:
    made: Apart = request.param()
    yield made
    made.rest()


def test_steps_come_one_by_one_and_one_work_follows_another(apart: Apart) -> None:
    assert list(apart.begin(partial(iter, [0, 1, 2]))) == [0, 1, 2]
    steps = apart.begin(partial(iter, "abc"))
    assert next(steps) == "a"
    assert list(apart.begin(partial(iter, "xy"))) == ["x", "y"]


def test_what_a_step_raises_is_raised_where_it_was_asked_for(apart: Apart) -> None:
    with pytest.raises(OSError, match="No such file"):
        next(apart.begin(partial(os.scandir, "/nowhere/at/all")))
    assert list(apart.begin(partial(iter, "a"))) == ["a"]


def test_a_process_that_dies_is_reported_and_replaced() -> None:
    apart = ProcessApart()
    with pytest.raises(StepsLost, match="ended with"):
        next(apart.begin(partial(map, os._exit, [3])))
    assert list(apart.begin(partial(iter, "a"))) == ["a"]
    apart.rest()


def test_a_process_ends_when_there_is_nothing_to_do_and_when_nobody_is_there_any_more() -> None:
    apart = ProcessApart()
    assert next(apart.begin(partial(iter, "ab"))) == "a"
    worker = apart._worker
    assert worker is not None and worker.stdin is not None
    pickle.dump(partial(map, time.sleep, [600.0]), worker.stdin)
    worker.stdin.close()  # as when the node dies, in the middle of a step
    assert worker.wait(timeout=60) == 0
    apart.rest()


def test_a_log_is_compacted_by_another_process(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=400, is_compacted=True)
    log = open_log(Shared(OsFiles(10)), str(tmp_path / "t-0"), TOPIC_ID, config)
    for number in range(30):
        keyed(log, (b"%d" % (number % 3), b"%d" % number))
    roll(log)
    apart = ProcessApart()
    run(log, begun(log), take=apart.begin)
    apart.rest()
    assert [offset for offset, _, _ in records_in(log)] == [27, 28, 29]
    log.close()


def test_tcomp_7_a_process_takes_nearly_all_the_work_of_compaction_from_who_asks(tmp_path: Path) -> None:
    """In time of the processor, so that a busy machine makes no difference. `python -m bench.compaction` has how late
    a loop is beside it."""
    config = LogConfig(segment_bytes=1 << 20, is_compacted=True)
    took_s = []
    for apart in (BesideLoop(), ProcessApart()):
        log = open_log(Shared(OsFiles(10)), str(tmp_path / type(apart).__name__), TOPIC_ID, config)
        for number in range(100):
            keyed(log, *((b"%d" % ((number * 97 + at) % 3_000), bytes(60)) for at in range(700)))
        roll(log)
        cleaning = begun(log)
        list(apart.begin(partial(iter, "a")))  # it is there
        began_s = time.thread_time()
        run(log, cleaning, take=apart.begin)
        took_s.append(time.thread_time() - began_s)
        apart.rest()
        assert len(records_in(log)) == 3_000
    assert took_s[1] < took_s[0] / 5, took_s
