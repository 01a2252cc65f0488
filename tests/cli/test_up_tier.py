"""`headrace up --tier`: old segments of a topic go to a directory, and from the node's disk."""

from pathlib import Path

from tests.cli.programs import headrace_process, running_up, wait_until

OFTEN = ("remote.log.manager.task.interval.ms=100", "log.retention.check.interval.ms=100")
TOPIC = (
    "remote.storage.enable=true",
    "segment.bytes=20000",
    "local.retention.bytes=1",
    "file.delete.delay.ms=0",
)


def sets(*settings: str) -> list[str]:
    return [argument for setting in settings for argument in ("--set", setting)]


def test_old_segments_are_in_the_tier_and_on_the_disk_no_more(tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    with running_up(tmp_path, "--data", str(tmp_path / "kept"), "--tier", str(objects), *sets(*OFTEN)) as up:
        to = ("--bootstrap", up.bootstrap)
        created = headrace_process("topic", "create", "t", "--partitions", "1", *sets(*TOPIC), *to)
        assert created.returncode == 0, created.stderr
        for _ in range(8):
            assert headrace_process("produce", "t", "--count", "100", *to).returncode == 0
        logs = tmp_path / "kept" / "node-1" / "logs" / "t-0"
        wait_until(lambda: len(list(objects.rglob("*.segment"))) > 1, "segments are in the tier")
        wait_until(lambda: len(list(logs.glob("*.log"))) == 1, "they have gone from the disk")
        assert not (logs / f"{0:020d}.log").exists()
        assert up.stop() == 0


def test_a_tier_that_cannot_be_used_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for tier, reason in (
        ("s3:/bucket", b"as s3://bucket would be"),
        (str(tmp_path / "file"), b"is a file"),
    ):
        done = headrace_process("up", "--ephemeral", "--port", "0", "--tier", tier)
        assert done.returncode == 2 and reason in done.stderr, done.stderr
    done = headrace_process("up", "--ephemeral", "--port", "0", "--tier", "ftp://somewhere/else")
    assert done.returncode == 1
    assert b"Cannot use 'ftp://somewhere/else' as object store" in done.stderr
    assert headrace_process("up", "--ephemeral", "--tier", "").returncode == 2
