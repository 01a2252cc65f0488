"""One suite for the disk and for its twin in memory."""

import errno
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from headrace.storage.files import AlreadyLocked, Files
from headrace.storage.memory_files import MemoryFiles, ProcessDied
from headrace.storage.os_files import PARTS_MAX, OsFiles


@pytest.fixture(params=["os", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return OsFiles(open_files_max=8) if request.param == "os" else MemoryFiles()


@pytest.fixture
def root(files: Files, tmp_path: Path) -> str:
    files.make_directory(str(tmp_path))
    return str(tmp_path)


def test_what_was_written_is_read_by_position(files: Files, root: str) -> None:
    file = files.create(f"{root}/a")
    file.write(0, [b"one", bytearray(b"two"), memoryview(b"three")])
    file.write(3, [b"TWO"])
    assert file.read(0, 100) == b"oneTWOthree"
    assert file.read(3, 3) == b"TWO"
    assert file.read(11, 5) == b""
    assert file.size() == files.size(f"{root}/a") == 11
    assert files.open(f"{root}/a").read(6, 5) == b"three"
    assert files.read(f"{root}/a") == b"oneTWOthree"


def test_a_part_of_a_file_is_read_without_opening_it_to_write(files: Files, root: str) -> None:
    path = f"{root}/a"
    files.create(path).write(0, [b"0123456789"])
    file = files.open_to_read(path)
    assert file.read(3, 4) == b"3456"
    assert file.read(8, 4) == b"89"
    assert file.read(12, 4) == b""
    with pytest.raises(FileNotFoundError):
        files.open_to_read(f"{root}/b")


def test_what_is_in_memory_is_read_at_once_and_after_the_name_is_gone(files: Files, root: str) -> None:
    path = f"{root}/a"
    files.create(path).write(0, [b"0123456789"])
    file = files.open_to_read(path)
    files.remove(path)
    found = bytearray(6)
    assert file.read_at_once(6, memoryview(found)) == 4
    assert found == b"6789\0\0"
    assert file.read_at_once(10, memoryview(found)) == 0
    assert file.read(0, 3) == b"012"


def test_a_write_takes_more_parts_than_the_kernel_does(files: Files, root: str) -> None:
    file = files.create(f"{root}/a")
    file.write(2, [b"%04d" % number for number in range(PARTS_MAX + 100)])
    assert file.size() == 2 + 4 * (PARTS_MAX + 100)
    assert file.read(2 + 4 * PARTS_MAX, 4) == b"%04d" % PARTS_MAX


def test_a_file_is_cut_and_grows_again_with_zeros_between(files: Files, root: str) -> None:
    file = files.create(f"{root}/a")
    file.write(0, [b"abcdef"])
    file.truncate(2)
    assert file.read(0, 10) == b"ab"
    file.write(4, [b"x"])
    assert file.read(0, 10) == b"ab\0\0x"


def test_creating_a_file_empties_what_was_there(files: Files, root: str) -> None:
    files.create(f"{root}/a").write(0, [b"old"])
    assert files.create(f"{root}/a").size() == 0


def test_a_file_that_does_not_exist_is_noticed_on_first_use(files: Files, root: str) -> None:
    file = files.open(f"{root}/nowhere")
    with pytest.raises(FileNotFoundError):
        file.read(0, 1)
    with pytest.raises(FileNotFoundError):
        file.write(0, [b"x"])
    for attempt in (files.read, files.size, files.modified_ms, files.remove, files.names):
        with pytest.raises(FileNotFoundError):
            attempt(f"{root}/nowhere")


def test_a_closed_file_opens_again_by_itself(files: Files, root: str) -> None:
    file = files.create(f"{root}/a")
    file.write(0, [b"abc"])
    file.close()
    assert file.read(0, 3) == b"abc"


def test_a_file_that_vanished_is_not_made_anew(files: Files, root: str) -> None:
    files.create(f"{root}/a").close()
    file = files.open(f"{root}/a")
    files.remove(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        file.write(0, [b"x"])
    assert not files.exists(f"{root}/a")


def test_a_replaced_file_has_the_new_content_and_leaves_nothing_beside(files: Files, root: str) -> None:
    files.replace(f"{root}/a", b"old")
    files.replace(f"{root}/a", b"new", durable=False)
    assert files.read(f"{root}/a") == b"new"
    assert files.names(root) == ["a"]


def test_names_are_sorted_and_directories_are_told_apart(files: Files, root: str) -> None:
    files.make_directory(f"{root}/d/e")
    files.make_directory(f"{root}/d/e")
    files.create(f"{root}/z")
    files.create(f"{root}/b")
    assert files.names(root) == ["b", "d", "z"]
    assert files.is_directory(f"{root}/d/e") and not files.is_directory(f"{root}/z")
    assert files.exists(f"{root}/d") and not files.exists(f"{root}/d/x")


def test_files_and_directories_are_renamed_and_removed(files: Files, root: str) -> None:
    files.make_directory(f"{root}/d")
    files.create(f"{root}/d/a").write(0, [b"abc"])
    files.rename(f"{root}/d", f"{root}/gone")
    files.rename(f"{root}/gone/a", f"{root}/gone/b")
    assert files.read(f"{root}/gone/b") == b"abc"
    files.create(f"{root}/c").write(0, [b"c"])
    files.rename(f"{root}/c", f"{root}/gone/b")
    assert files.read(f"{root}/gone/b") == b"c"
    files.remove(f"{root}/gone/b")
    assert files.names(f"{root}/gone") == []
    files.create(f"{root}/gone/again")
    with pytest.raises(OSError, match="not empty"):
        files.remove_directory(f"{root}/gone")
    files.remove_tree(f"{root}/gone")
    assert files.names(root) == []
    files.make_directory(f"{root}/empty")
    files.remove_directory(f"{root}/empty")
    assert files.names(root) == []
    with pytest.raises(FileNotFoundError):
        files.remove_directory(f"{root}/empty")


def test_a_sync_for_another_thread_outlives_the_file(files: Files, root: str) -> None:
    file = files.create(f"{root}/a")
    file.write(0, [b"abc"])
    sync = file.syncer()
    file.close()
    files.remove(f"{root}/a")
    sync()
    files.sync_directory(root)


def test_a_tree_is_synced_as_a_whole(files: Files, root: str) -> None:
    files.make_directory(f"{root}/d")
    tree = files.tree(root)
    files.create(f"{root}/d/a").write(0, [b"abc"])
    tree.sync()
    assert files.read(f"{root}/d/a") == b"abc"
    tree.close()
    tree.close()


def test_a_lock_is_held_by_one_until_it_is_released(files: Files, root: str) -> None:
    lock = files.lock(f"{root}/.lock")
    with pytest.raises(AlreadyLocked):
        files.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    files.lock(f"{root}/.lock").release()


def test_reserved_space_is_a_file_of_that_size(files: Files, root: str) -> None:
    files.reserve(f"{root}/reserve", 10_000)
    assert files.size(f"{root}/reserve") == 10_000


def test_a_disk_tells_how_large_it_is_and_how_much_is_free(files: Files, root: str) -> None:
    total_bytes, usable_bytes = files.space(root)
    assert 0 < usable_bytes <= total_bytes
    with pytest.raises(FileNotFoundError):
        files.space(f"{root}/nowhere")


def test_many_files_share_few_descriptors(tmp_path: Path) -> None:
    files = OsFiles(open_files_max=3)
    handles = [files.create(f"{tmp_path}/{number}") for number in range(20)]
    for turn in range(3):
        for number, handle in enumerate(handles):
            handle.write(turn, [b"%d" % (number % 10)])
            assert files.open_files <= 3
    assert [handle.read(0, 9) for handle in handles] == [b"%d" % (n % 10) * 3 for n in range(20)]
    for handle in handles:
        handle.close()
    assert files.open_files == 0


def test_a_file_in_use_keeps_its_descriptor_when_others_come_and_go(tmp_path: Path) -> None:
    files = OsFiles(open_files_max=2)
    busy = files.create(f"{tmp_path}/busy")
    for number in range(10):
        files.create(f"{tmp_path}/{number}")
        (tmp_path / "busy").unlink(missing_ok=True)
        busy.write(0, [b"x"])  # would fail if it had to be opened again


# What only memory can do


def test_a_call_fails_when_told_to_and_works_again_after() -> None:
    files = MemoryFiles()
    file = files.create("/a.log")
    files.fail("write", "*.log", errno.ENOSPC, nth=2, bytes_written=1)
    file.write(0, [b"fine"])
    with pytest.raises(OSError) as failure:
        file.write(4, [b"bad"])
    assert failure.value.errno == errno.ENOSPC
    assert file.read(0, 9) == b"fineb"
    file.write(4, [b"good"])
    assert file.read(0, 9) == b"finegood"
    files.fail("sync", "*", errno.EIO, times=2)
    for _ in range(2):
        with pytest.raises(OSError):
            file.sync()
    file.sync()


def test_a_dead_process_changes_nothing_more_and_everything_written_stays() -> None:
    files = MemoryFiles()
    file = files.create("/a")
    file.write(0, [b"before"])
    files.die_at(files.changes, bytes_written=2)
    with pytest.raises(ProcessDied):
        file.write(6, [b"after"])
    with pytest.raises(ProcessDied):
        files.remove("/a")
    files.restart()
    assert files.read("/a") == b"beforeaf"
    with pytest.raises(ProcessDied):
        file.read(0, 1)


def test_power_loss_takes_what_was_not_synced() -> None:
    files = MemoryFiles()
    kept = files.create("/kept")
    kept.write(0, [b"durable"])
    kept.sync()
    files.sync_directory("/")
    kept.write(0, [b"DURABLE and more"])
    files.create("/nameless").sync()
    files.lose_power()
    assert files.names("/") == ["kept"]
    assert files.read("/kept") == b"durable"


def test_power_loss_leaves_a_synced_tree_alone() -> None:
    files = MemoryFiles()
    files.make_directory("/d/e")
    files.sync_directory("/")
    files.create("/d/e/a").write(0, [b"abc"])
    files.tree("/d").sync()
    files.lose_power()
    assert files.read("/d/e/a") == b"abc"


def test_power_loss_brings_back_what_was_cut_renamed_or_removed_without_a_sync() -> None:
    files = MemoryFiles()
    for name in ("/cut", "/renamed", "/removed"):
        file = files.create(name)
        file.write(0, [name.encode() * 300])
        file.sync()
    files.sync_directory("/")
    files.open("/cut").truncate(5)
    files.rename("/renamed", "/new name")
    files.remove("/removed")
    files.lose_power()
    assert files.names("/") == ["cut", "removed", "renamed"]
    assert files.read("/cut") == b"/cut" * 300


@pytest.mark.parametrize("surviving", [(), (0,), (1,), (0, 2), (0, 1, 2)])
def test_a_torn_write_survives_sector_by_sector(surviving: tuple[int, ...]) -> None:
    files = MemoryFiles()
    files.create("/a").sync()
    files.sync_directory("/")
    files.open("/a").write(0, [b"x" * 1300])
    answers = iter([True] + [sector in surviving for sector in range(3)])
    files.lose_power(lambda: next(answers))
    sectors = [files.read("/a")[at : at + 512] for at in (0, 512, 1024)]
    assert [sector.strip(b"\0") != b"" for sector in sectors] == [sector in surviving for sector in range(3)]


def test_a_replaced_file_is_the_old_or_the_new_one_after_power_loss_at_any_point() -> None:
    for everything_survives in (False, True):
        for point in range(20):
            files = MemoryFiles()
            files.replace("/a", b"old")
            files.die_at(files.changes + point)
            expected = {b"old", b"new" * 500}
            with suppress(ProcessDied):
                files.replace("/a", b"new" * 500)
                expected.remove(b"old")
            files.lose_power(partial(bool, everything_survives))
            assert files.read("/a") in expected


def test_a_file_gets_a_second_name_unless_it_is_taken(files: Files, root: str) -> None:
    files.create(f"{root}/a").write(0, [b"one"])
    files.link(f"{root}/a", f"{root}/b")
    files.remove(f"{root}/a")
    assert files.read(f"{root}/b") == b"one"
    files.create(f"{root}/a").write(0, [b"two"])
    with pytest.raises(FileExistsError):
        files.link(f"{root}/a", f"{root}/b")
    assert files.read(f"{root}/b") == b"one"
    with pytest.raises(FileNotFoundError):
        files.link(f"{root}/nowhere", f"{root}/c")


def test_a_part_of_another_file_is_copied_to_a_position(files: Files, root: str) -> None:
    files.create(f"{root}/a").write(0, [b"0123456789"])
    copy = files.create(f"{root}/b")
    copy.write(0, [b"head"])
    copy.copy_from(f"{root}/a", 3, 4, 4)
    copy.copy_from(f"{root}/a", 9, 0, 8)
    assert copy.read(0, 100) == b"head3456"
    for source, start, length in ((f"{root}/a", 8, 3), (f"{root}/nowhere", 0, 1)):
        with pytest.raises(OSError) as told:
            copy.copy_from(source, start, length, 8)
        assert told.value.filename == source


def test_a_copy_that_the_kernel_cannot_do_goes_through_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("os.copy_file_range", refuse)
    files = OsFiles(open_files_max=8)
    content = bytes(range(256)) * 9_000
    files.create(f"{tmp_path}/a").write(0, [content])
    copy = files.create(f"{tmp_path}/b")
    copy.copy_from(f"{tmp_path}/a", 5, len(content) - 5, 0)
    assert copy.read(0, len(content)) == content[5:]
