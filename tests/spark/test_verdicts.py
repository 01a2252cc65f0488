"""What became of records that are not there: a verdict for each case, and none where nothing is lost."""

import pickle
from collections.abc import Callable

import pytest

from headrace.model import TopicPartition
from headrace.spark.verdicts import (
    DataLoss,
    LogNow,
    Loss,
    Place,
    Query,
    Verdict,
    gone,
    judge,
    recreated,
    truncated,
)

T0 = TopicPartition("t", 0)
OLD, NEW = bytes([1] * 16), bytes([2] * 16)


@pytest.mark.parametrize(
    ("place", "log", "verdict", "resume_at"),
    [
        (Place(500, OLD, 3), LogNow(OLD, 0, 500), None, 0),
        (Place(500, OLD, 3), LogNow(OLD, 500, 900), None, 0),
        (Place(500, OLD, 3), LogNow(OLD, 0, 900, epoch_end=500), None, 0),
        (Place(500, OLD, 3), LogNow(OLD, 800, 900), Verdict.AGED_OUT, 800),
        (Place(500, OLD, 3), LogNow(NEW, 0, 150), Verdict.RECREATED, 0),
        (Place(500, OLD, 3), LogNow(NEW, 20, 700), Verdict.RECREATED, 20),
        (Place(500, OLD, 3), LogNow(OLD, 0, 300), Verdict.TRUNCATED, 300),
        (Place(500, OLD, 3), LogNow(OLD, 0, 900, epoch_end=300), Verdict.TRUNCATED, 300),
        (Place(500, OLD, 3), LogNow(OLD, 0, 300, epoch_end=500), None, 0),  # readers do not see all of it yet
        (Place(500, OLD, 3), LogNow(OLD, 400, 900, epoch_end=300), Verdict.TRUNCATED, 400),
        (Place(500, OLD, 3, is_read=False), LogNow(OLD, 0, 900, epoch_end=300), Verdict.TRUNCATED, 300),
        (Place(500, is_read=False), LogNow(OLD, 0, 300), Verdict.NOT_YET, 300),
        (Place(500), LogNow(OLD, 0, 300), Verdict.TRUNCATED, 300),  # by a checkpoint without topic ids
        (Place(500), LogNow(OLD, 0, 700), None, 0),
        (Place(500, OLD), LogNow(bytes(16), 0, 700), None, 0),  # of brokers without topic ids
    ],
)
def test_each_loss_has_its_verdict(place: Place, log: LogNow, verdict: Verdict | None, resume_at: int) -> None:
    loss = judge(T0, place, log)
    assert (None if loss is None else loss.verdict) == verdict
    if loss is not None:
        assert loss.resume_at == resume_at
        assert str(loss).startswith(f"{loss.verdict.value}: ")
        assert "failOnDataLoss" in loss.sentence


@pytest.mark.parametrize("loss", [recreated, gone, truncated])
def test_who_runs_a_batch_is_told_to_run_it_again_and_not_of_checkpoints(loss: Callable[..., Loss]) -> None:
    given = (Place(500), 300) if loss is truncated else (500, 0)
    assert "oad it again (spark.read)" in loss(T0, *given, query=Query.BATCH).sentence
    for query in (Query.NAMED, Query.PATTERN):
        assert "failOnDataLoss" in loss(T0, *given, query=query).sentence
        assert "again" not in loss(T0, *given, query=query).sentence


def test_a_checkpoint_without_topic_ids_is_told_to_be_in_doubt() -> None:
    loss = judge(T0, Place(500), LogNow(OLD, 0, 300))
    assert loss is not None
    assert "holds no topic id to tell" in loss.sentence


def test_a_loss_comes_through_from_another_process() -> None:
    loss = judge(T0, Place(500, OLD, 3), LogNow(OLD, 800, 900))
    assert loss is not None
    found = pickle.loads(pickle.dumps(DataLoss(loss)))
    assert found.loss == loss
    assert "AGED_OUT" in str(found)
