"""Which object store a URL means, and what is said of one that means none."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.storage.os_files import OsFiles
from headrace.system import SystemRandom, ThreadOffload
from headrace.tier.cloud import CloudStore
from headrace.tier.directory import DirectoryStore
from headrace.tier.opening import open_for_tools, open_object_store
from headrace.tier.store import ObjectStore, Refused, StoreUnavailable


def opened(url: str, offload: ThreadOffload) -> ObjectStore:
    return open_object_store(url, OsFiles(open_files_max=8), offload, SystemRandom())


async def test_a_path_and_a_file_url_are_a_directory(tmp_path: Path, offload: ThreadOffload) -> None:
    one = opened(str(tmp_path / "new dir" / "deep"), offload)
    two = opened((tmp_path / "new dir" / "deep").as_uri(), offload)
    assert isinstance(one, DirectoryStore) and isinstance(two, DirectoryStore)
    await one.begin()
    await one.put("c/a", [b"abc"])
    assert await two.get("c/a", 0, 3) == b"abc"
    assert await open_for_tools(str(tmp_path / "new dir" / "deep"), offload, SystemRandom()).size("c/a") == 3
    assert (tmp_path / "new dir" / "deep" / "c" / "a").read_bytes() == b"abc"


async def test_a_command_makes_no_directory_where_a_store_should_be(tmp_path: Path, offload: ThreadOffload) -> None:
    store = open_for_tools(str(tmp_path / "none"), offload, SystemRandom())
    with pytest.raises(StoreUnavailable, match="not mounted, or it is another directory"):
        await store.size("c/a")
    assert not (tmp_path / "none").exists()


def test_buckets_are_opened_without_asking_them(offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    for url in ("s3://bucket/prefix?region=eu-west-1", "s3://bucket", "gs://bucket/prefix", "az://container/prefix"):
        assert isinstance(opened(url, offload), CloudStore)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("relative/dir", "give a directory"),
        ("", "give a directory"),
        ("ftp://host/dir", "give a directory"),
        ("file://elsewhere/dir", "give a directory"),
        ("s3:///prefix", "give a directory"),
        ("s3://key:secret@bucket/prefix", "Credentials do not belong"),
        ("s3://bucket/prefix?colour=red", "no option 'colour'"),
    ],
)
def test_what_means_no_store_is_refused_with_the_reason(url: str, reason: str, offload: ThreadOffload) -> None:
    with pytest.raises(Refused, match=reason):
        opened(url, offload)


def test_obstore_is_loaded_by_those_who_use_it_only() -> None:
    code = "import sys, headrace.tier.opening, headrace.tier.verify; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_missing_obstore_is_named(offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "headrace.tier.cloud", None)
    with pytest.raises(Refused, match=r"install headrace\[tier\], or headrace\[spark\] where Spark runs"):
        opened("s3://bucket", offload)
