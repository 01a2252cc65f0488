"""Where compiled loops are kept for the next process."""

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core.caching import IndexDataCacheFile, _CacheLocator

from headrace.spark.decode.compiled import compiled

CONFIG: Any = numba.config


def add_one(number: int) -> int:
    return number + 1


def kept_in(function: Any) -> str | None:
    return getattr(function.stats, "cache_path", None)


@pytest.fixture
def read_only_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As numba sees it, whoever runs the tests. What is there among temporary files."""

    def only_where_somebody_said(locator: Any) -> None:
        if type(locator).__name__ != "UserProvidedCacheLocator":
            raise OSError("a read-only file system")
        os.makedirs(locator.get_cache_path(), exist_ok=True)

    monkeypatch.setattr(_CacheLocator, "ensure_cache_path", only_where_somebody_said)
    monkeypatch.setattr(CONFIG, "CACHE_DIR", "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_read_only_installation_keeps_them_among_temporary_files(read_only_installation: Path) -> None:
    function = compiled(add_one)
    assert function(1) == 2
    path = kept_in(function)
    assert path is not None
    assert Path(path).parent == read_only_installation / f"headrace-compiled-{os.getuid()}"
    assert list(Path(path).glob("*.nbi"))
    assert CONFIG.CACHE_DIR == ""


@pytest.mark.parametrize("kind", ["open to all", "a link", "a file", "nowhere"])
def test_what_others_could_have_written_is_not_loaded(
    read_only_installation: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = read_only_installation / f"headrace-compiled-{os.getuid()}"
    if kind == "open to all":
        path.mkdir()
        path.chmod(0o777)
    elif kind == "a link":
        (read_only_installation / "elsewhere").mkdir(mode=0o700)
        path.symlink_to(read_only_installation / "elsewhere")
    elif kind == "a file":
        path.touch()
    else:
        monkeypatch.setattr(tempfile, "tempdir", str(read_only_installation / "not there"))
    function = compiled(add_one)
    assert function(1) == 2
    assert kept_in(function) is None
    assert CONFIG.CACHE_DIR == ""


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(CONFIG, "CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_full_disk_costs_the_time_to_compile(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function = compiled(add_one)

    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_open_for_write", is_full)
    assert function(1) == 2
    assert not list(cache.rglob("*.nb?"))


def test_a_cache_that_disappears_costs_the_time_to_compile(cache: Path) -> None:
    function = compiled(add_one)
    shutil.rmtree(cache)
    cache.touch()
    assert function(1) == 2


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_file_that_a_crash_has_cut_off_is_made_again(cache: Path, suffix: str) -> None:
    assert compiled(add_one)(1) == 2
    (torn,) = cache.rglob(f"*.{suffix}")
    torn.write_bytes(torn.read_bytes()[: 20 if suffix == "nbc" else 0])
    assert compiled(add_one)(1) == 2
    last: Any = compiled(add_one)
    assert last(1) == 2 and sum(last.stats.cache_hits.values()) == 1
