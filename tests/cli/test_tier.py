"""`headrace tier` as people read it; what it asks of a real broker and of real stores is in interop/test_tier.py."""

from pathlib import Path
from typing import Any

import pytest

from headrace.cli import tier
from headrace.cli.outcome import Failure
from headrace.cli.tier_verify import check
from headrace.core.tier_rows import Manifest
from headrace.storage.os_files import OsFiles
from headrace.system import SystemRandom, ThreadOffload
from headrace.tier.directory import DirectoryStore
from headrace.tier.manifest import encode
from tests.cli.programs import headrace
from tests.tier.rows import stored_segment

SEGMENT = "c/t/0/00000000000000000010-2-a.segment"
MANIFEST = "c/t/0/manifest-1"


def partition(**other: Any) -> dict[str, Any]:
    well = {
        "topic": "t",
        "partition": 0,
        "leader_epoch": 3,
        "log_start": 10,
        "local_log_start": 15,
        "log_end": 40,
        "highest_remote": 19,
        "local_bytes": 700,
        "lag_segments": 0,
        "lag_bytes": 0,
        "failure": None,
        "segments": [{"verdict": "inside", "bytes": 100}],
    }
    return {**well, **other}


@pytest.mark.parametrize(
    ("other", "cells"),
    [
        ({}, ["10 to 19", 1, 100, "15 to 39", 700, "none", ""]),
        ({"highest_remote": -1, "segments": []}, ["none", 0, 0, "15 to 39", 700, "none", ""]),
        ({"lag_segments": 2, "lag_bytes": 9}, ["10 to 19", 1, 100, "15 to 39", 700, "2 segments, 9 bytes", ""]),
        (
            {"segments": [{"verdict": "divergent", "bytes": 1}, {"verdict": None, "bytes": 2}]},
            ["10 to 19", 0, 0, "15 to 39", 700, "none", "1 segments are not read"],
        ),
    ],
)
def test_each_partition_is_a_line_of_what_is_where(other: dict[str, Any], cells: list[object]) -> None:
    assert tier._status_row(partition(**other)) == ["t", 0, 3, *cells]


def test_what_is_not_known_is_not_made_up() -> None:
    told = {"topic": "t", "partition": 0, "leader_epoch": 3, "failure": "The store is down."}
    assert tier._status_row(told) == ["t", 0, 3, "?", "?", "?", "?", "?", "?", "The store is down."]


@pytest.mark.parametrize("command", ["status", "ls", "verify"])
def test_a_cluster_without_a_tier_has_nothing_to_tell(bootstrap: str, command: str) -> None:
    done = headrace("tier", command, "--bootstrap", bootstrap)
    assert done.returncode == 0, done.said


async def stored(directory: Path, content: bytes | None, manifest: bytes | None) -> dict[str, Any]:
    """What a leader would tell of a partition with one segment."""
    segment = stored_segment(base_offset=10)
    offload = ThreadOffload()
    store = DirectoryStore(str(directory), OsFiles(open_files_max=8), offload, SystemRandom())
    await store.begin()
    whole = encode(Manifest("0" * 32, 0, 2, 1, 10, (segment.row,)))
    await store.put(MANIFEST, [whole if manifest is None else manifest])
    await store.put(SEGMENT, [bytes(segment.content) if content is None else content])
    offload.close()
    told = {"id": segment.row.id, "state": "copy_finished", "object": SEGMENT, "bytes": len(segment.content)}
    return partition(manifest=MANIFEST, url=str(directory), segments=[told])


@pytest.mark.parametrize("harm", ["none", "flip", "manifest"])
async def test_damage_is_told_with_its_object(tmp_path: Path, harm: str) -> None:
    content = bytearray(stored_segment(base_offset=10).content)
    content[70] ^= 1
    told = await stored(
        tmp_path, bytes(content) if harm == "flip" else None, b"rubbish" if harm == "manifest" else None
    )

    async def again() -> list[dict[str, Any]]:
        return [told]

    checked = await check([told], None, again)
    problems = [(one["object"], one["problem"]) for one in checked.problems]
    expected = {
        "none": [],
        "flip": [(SEGMENT, "The batch at byte 0 of the log fails its checksum.")],
        "manifest": [(MANIFEST, "The object does not begin as a manifest does.")],
    }
    assert problems == expected[harm]
    assert checked.bytes == (0 if harm == "manifest" else len(content))


async def test_what_expires_while_it_is_read_is_no_problem(tmp_path: Path) -> None:
    told = await stored(tmp_path, None, None)
    (tmp_path / SEGMENT).unlink()

    async def nothing_left() -> list[dict[str, Any]]:
        return [partition(manifest=MANIFEST, segments=[])]

    async def as_before() -> list[dict[str, Any]]:
        return [told]

    assert (await check([told], None, nothing_left)).problems == []
    (problem,) = (await check([told], None, as_before)).problems
    assert problem["object"] == SEGMENT and "missing" in problem["problem"]


async def test_a_store_that_cannot_be_opened_is_a_sentence(tmp_path: Path) -> None:
    told = await stored(tmp_path, None, None)

    async def again() -> list[dict[str, Any]]:
        return [told]

    with pytest.raises(Failure, match="Cannot use"):
        await check([told], "ftp://somewhere", again)
