"""Manifests change by making the next one; rows go from state to state in one direction only."""

import pytest

from headrace.core.tier_rows import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_STARTED,
    Manifest,
    NotInManifest,
    adding,
    deleting,
    empty_manifest,
    finishing,
    starting_at,
    without,
)
from tests.tier.rows import row


@pytest.fixture
def manifest() -> Manifest:
    return adding(empty_manifest(bytes(16), 3, 5, 0), row(1, 0, 9, state=COPY_STARTED), 5)


ID = row(1, 0, 9).id


def test_a_segment_is_copied_and_deleted_in_four_manifests(manifest: Manifest) -> None:
    assert (manifest.number, manifest.partition, manifest.rows[0].state) == (1, 3, COPY_STARTED)
    finished = finishing(manifest, ID, 77, 6)
    assert (finished.number, finished.leader_epoch, finished.bytes) == (2, 6, 100)
    assert (finished.rows[0].state, finished.rows[0].finished_ms) == (COPY_FINISHED, 77)
    doomed = deleting(finished, [ID], 10, 6)
    assert (doomed.rows[0].state, doomed.log_start_offset, doomed.bytes) == (DELETE_STARTED, 10, 0)
    assert without(doomed, [ID], 6) == Manifest("00" * 16, 3, 6, 4, 10, ())
    assert manifest.number == 1


def test_an_attempt_that_failed_is_deleted_without_moving_the_log_start(manifest: Manifest) -> None:
    doomed = deleting(manifest, [ID], 0, 5)
    assert (doomed.rows[0].state, doomed.log_start_offset) == (DELETE_STARTED, 0)
    assert deleting(doomed, [ID], 0, 5).rows == doomed.rows


def test_no_row_goes_back(manifest: Manifest) -> None:
    finished = finishing(manifest, ID, 77, 5)
    with pytest.raises(NotInManifest):
        finishing(finished, ID, 78, 5)
    with pytest.raises(NotInManifest):
        finishing(deleting(finished, [ID], 0, 5), ID, 78, 5)
    with pytest.raises(NotInManifest):
        without(finished, [ID], 5)
    with pytest.raises(NotInManifest):
        deleting(manifest, ["ff"], 0, 5)


def test_neither_the_log_start_nor_the_leader_epoch_falls(manifest: Manifest) -> None:
    later = starting_at(manifest, 7, 5)
    assert starting_at(later, 3, 5).log_start_offset == 7
    assert deleting(later, [ID], 3, 5).log_start_offset == 7
    with pytest.raises(AssertionError):
        starting_at(manifest, 7, 4)
