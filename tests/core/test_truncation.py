"""Where a follower cuts its log, and how it finds back into the range of its leader."""

import pytest

from headrace.core.epochs import EpochList
from headrace.core.truncation import AskEarliest, Keep, Repair, RestartAt, TruncateTo, repair, truncation_offset


@pytest.mark.parametrize(
    ("epoch", "end_offset", "cut"),
    [
        (2, 15, 15),  # we have that epoch, and more of it than the leader
        (2, 25, 20),  # we have less of it
        (4, 50, 30),  # the leader's ends beyond our log
        (3, 18, 20),  # we lack that epoch: only our own older one is sure, and the next fetch tells more
        (9, 12, 12),  # newer than all that we know
    ],
)
def test_the_cut_is_at_the_end_of_the_epoch_that_both_have(epoch: int, end_offset: int, cut: int) -> None:
    assert truncation_offset(EpochList([(1, 0), (2, 10), (4, 20)]), 30, epoch, end_offset) == cut


def test_without_any_epoch_the_leader_is_believed() -> None:
    assert truncation_offset(EpochList(), 30, 2, 12) == 12
    assert truncation_offset(EpochList(), 8, 2, 12) == 8


@pytest.mark.parametrize(
    ("latest", "earliest", "verdict"),
    [
        (5, None, TruncateTo(5)),
        (10, None, AskEarliest()),
        (20, 12, RestartAt(12)),
        (20, 10, Keep()),
        (20, 0, Keep()),
    ],
)
def test_an_offset_out_of_range_is_repaired_by_what_the_leader_has(
    latest: int, earliest: int | None, verdict: Repair
) -> None:
    found = repair(10, latest, earliest)
    assert (type(found), found) == (type(verdict), verdict)
