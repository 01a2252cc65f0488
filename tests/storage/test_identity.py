"""What directories remember of a node's last run, and when they must not be taken for whole."""

from dataclasses import replace

import pytest

from headrace.storage.identity import Identity, LastRun
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles
from headrace.storage.properties import MetaProperties

RUN = LastRun(lease_id=7, incarnation="abc", broker_epoch=50, intact_since=20)


class Disk:
    """Two directories of one node, through its lives."""

    def __init__(self) -> None:
        self.files = MemoryFiles(lambda: 0)
        self.boot_id, self.mount_id = "boot 1", "mount 1"
        self.paths = ["/one", "/two"]
        self.open: list[LogDir] = []

    def start(self) -> tuple[Identity, LastRun]:
        self.open = [LogDir(self.files, path) for path in self.paths]
        for number, directory in enumerate(self.open):
            if directory.read_meta() is None:
                directory.write_meta(MetaProperties("cluster", 1, bytes([number] * 16)))
        identity = Identity(self.open, self.boot_id, lambda _: self.mount_id)
        return identity, identity.last_run()

    def kill(self) -> None:
        for directory in self.open:
            directory.abandon()
        self.files.restart()


def run_once(disk: Disk) -> None:
    identity, first = disk.start()
    assert first == LastRun()
    identity.remember(RUN)
    disk.kill()


def test_a_killed_process_has_lost_nothing() -> None:
    disk = Disk()
    run_once(disk)
    for _ in range(3):
        _, last = disk.start()
        assert last == RUN
        disk.kill()


@pytest.mark.parametrize("changed", ["boot_id", "mount_id"])
def test_without_its_page_cache_a_directory_is_not_whole_and_stays_so(changed: str) -> None:
    disk = Disk()
    run_once(disk)
    setattr(disk, changed, "another")
    for _ in range(2):  # the second start must not take the loss for intact
        _, last = disk.start()
        assert last == replace(RUN, intact_since=0)
        disk.kill()


def test_a_clean_stop_survives_another_boot() -> None:
    disk = Disk()
    run_once(disk)
    disk.start()
    for directory in disk.open:
        assert directory.close() == []
    disk.boot_id = "boot 2"
    _, last = disk.start()
    assert last == RUN


def test_a_directory_that_is_missing_or_empty_now_is_a_loss() -> None:
    disk = Disk()
    run_once(disk)
    disk.paths = ["/one"]
    assert disk.start()[1].intact_since == 0
    disk.kill()
    disk = Disk()
    run_once(disk)
    disk.paths = ["/one", "/three"]
    assert disk.start()[1].intact_since == 0


def test_one_directory_put_back_from_a_copy_counts_for_all() -> None:
    disk = Disk()
    run_once(disk)
    old = disk.files.read("/two/meta.properties")
    identity, _ = disk.start()
    identity.remember(replace(RUN, incarnation="def", broker_epoch=80))
    disk.kill()
    disk.files.replace("/two/meta.properties", old)
    _, last = disk.start()
    assert (last.incarnation, last.broker_epoch, last.intact_since) == ("def", 50, 0)


def test_a_loss_in_one_directory_is_remembered_by_all() -> None:
    disk = Disk()
    run_once(disk)
    identity, _ = disk.start()
    identity.remember(replace(RUN, intact_since=0))
    disk.kill()
    assert disk.start()[1].intact_since == 0
