"""The real machine, as a node sees it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.system import mount_id_of


def test_a_directory_has_the_same_mount_in_every_process(tmp_path: Path) -> None:
    program = f"from headrace.system import mount_id_of; print(mount_id_of({str(tmp_path)!r}))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.strip() == mount_id_of(str(tmp_path)) != ""


def test_a_file_system_that_is_mounted_anew_is_another_mount(tmp_path: Path) -> None:
    """Its number is given to the next mount; what was not synced before may be gone all the same."""
    if os.geteuid() != 0 or tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) < (6, 8):
        pytest.skip("needs root and Linux 6.8")
    seen = set()
    for _ in range(2):
        mounted = subprocess.run(["mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True)
        if mounted.returncode:
            pytest.skip("nothing may be mounted here")
        seen.add(mount_id_of(str(tmp_path)))
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert len(seen) == 2 and "" not in seen


def test_nothing_is_told_of_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert mount_id_of(str(tmp_path / "nothing")) == ""
