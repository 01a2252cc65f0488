"""`headrace tier` as people read it; what it asks of a real broker and of real stores is in interop/test_tier.py."""

from pathlib import Path
from typing import Any

import pytest

from headrace.cli import tier
from headrace.cli.outcome import Failure
from headrace.cli.tier_verify import NOBODY, Checked, check
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
        ({"copying": False}, ["10 to 19", 1, 100, "15 to 39", 700, "not copied", ""]),
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


def test_a_tiered_partition_of_which_no_node_tells_is_listed_too() -> None:
    told = tier.with_silent([partition(partition=1)], [("t", 0), ("t", 1), ("a", 0)])
    assert [(one["topic"], one["partition"], one["failure"]) for one in told] == [
        ("a", 0, NOBODY),
        ("t", 0, NOBODY),
        ("t", 1, None),
    ]
    assert tier._status_row(told[0]) == ["a", 0, "?", "?", "?", "?", "?", "?", "?", NOBODY]


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


async def test_a_manifest_that_is_replaced_meanwhile_is_followed(tmp_path: Path) -> None:
    told = await stored(tmp_path, None, None)
    asked = 0

    async def again() -> list[dict[str, Any]]:
        nonlocal asked
        asked += 1
        return [{**told, "manifest": "c/t/0/manifest-0"} if asked == 1 else told]

    checked = await check([{**told, "manifest": "c/t/0/manifest-gone"}], None, again)
    assert (checked.segments, checked.problems, checked.left_out) == (1, [], []) and asked == 2
    assert checked.bytes > 0


async def test_a_manifest_that_is_missing_or_empty_is_a_problem(tmp_path: Path) -> None:
    told = await stored(tmp_path, None, None)

    async def again() -> list[dict[str, Any]]:
        return [told]

    (tmp_path / MANIFEST).write_bytes(b"")
    (problem,) = (await check([told], None, again)).problems
    assert problem["problem"] == "The manifest is empty."
    (tmp_path / MANIFEST).unlink()
    (problem,) = (await check([told], None, again)).problems
    assert problem["problem"] == "The object is missing."


async def test_what_was_not_checked_is_told_and_never_no_problem(tmp_path: Path) -> None:
    told = await stored(tmp_path, None, None)
    waiting = {"topic": "t", "partition": 1, "leader_epoch": 3, "failure": "The store is down.", "manifest": None}
    starting = {**waiting, "partition": 2, "failure": None}

    async def again() -> list[dict[str, Any]]:
        return [told, waiting, starting]

    expected = [("t", index) for index in range(4)]
    checked = await check(await again(), None, again, expected)
    assert checked.problems == [] and checked.segments == 1
    assert {one["partition"]: one["reason"] for one in checked.left_out} == {
        1: "The store is down.",
        2: "Its leader has not read its manifest yet.",
        3: NOBODY,
    }
    assert tier.summary(checked) == "3 partitions not checked"
    assert tier.summary(Checked(1, 100, [], [])) == "no problem"
    assert tier.summary(Checked(0, 0, [], [])) == "there was nothing to check"


async def test_a_partition_whose_manifest_never_stands_still_or_that_goes_is_left_out(tmp_path: Path) -> None:
    told = await stored(tmp_path, None, None)
    asked = 0

    async def moving() -> list[dict[str, Any]]:
        nonlocal asked
        asked += 1
        return [{**told, "manifest": f"c/t/0/manifest-gone-{asked}"}]

    async def gone() -> list[dict[str, Any]]:
        return []

    for again in (moving, gone):
        checked = await check([{**told, "manifest": "c/t/0/manifest-gone"}], None, again)
        assert (checked.segments, checked.problems, len(checked.left_out)) == (0, [], 1)


async def test_a_directory_that_is_not_there_is_a_sentence_and_is_not_made(tmp_path: Path) -> None:
    told = await stored(tmp_path / "objects", None, None)

    async def again() -> list[dict[str, Any]]:
        return [told]

    with pytest.raises(Failure, match=r"not mounted.* Give --store"):
        await check([told], str(tmp_path / "none"), again)
    assert not (tmp_path / "none").exists()


def test_a_topic_without_a_tier_is_not_checked_and_that_is_told(bootstrap: str) -> None:
    assert headrace("topic", "create", "untiered", "--bootstrap", bootstrap).returncode == 0
    done = headrace("tier", "verify", "untiered", "--bootstrap", bootstrap)
    assert done.returncode == 1 and "not all that is in the tier was checked" in done.said
    assert b"untiered-0 was not checked" in done.stdout and b"no problem" not in done.stdout
