"""After a death in the middle of a swap: a segment that compaction made takes the place of its sources for good.

Once the new log has a name that ends in `.swap`, all of it is on the disk. Its sources are those whose offsets it
covers; some of them may be gone already. What lies beside the log may have its last name, if the log is next.
"""

from headrace.storage.files import File
from headrace.storage.segment import BESIDE_SUFFIXES, LOG_SUFFIX, SUFFIXES, SWAP_SUFFIX, file_name, offsets_of
from headrace.storage.shared import Shared
from headrace.storage.walk import walk


def finish_swaps(shared: Shared, directory: str, names: list[str]) -> list[str]:
    """Newest first. The names that are there then."""
    bases = offsets_of(names, LOG_SUFFIX + SWAP_SUFFIX)
    if not bases:
        return names
    shared.changing()
    for base_offset in reversed(bases):
        # An empty one says nothing of what it covers. Ours never are; Apache Kafka's come again with its next round.
        if shared.files.size(f"{directory}/{file_name(base_offset, LOG_SUFFIX + SWAP_SUFFIX)}"):
            _finish(shared, directory, names, base_offset)
        names = shared.files.names(directory)
    return names


def _finish(shared: Shared, directory: str, names: list[str], base_offset: int) -> None:
    files = shared.files
    there = set(names)
    swapped = f"{directory}/{file_name(base_offset, LOG_SUFFIX + SWAP_SUFFIX)}"
    end_offset = _end_of(files.open(swapped), files.size(swapped))
    sources = [offset for offset in offsets_of(names, LOG_SUFFIX) if base_offset <= offset < end_offset]
    for offset in sources:
        doomed = [name for suffix in SUFFIXES if (name := file_name(offset, suffix)) in there]
        shared.discard([f"{directory}/{name}" for name in doomed], 0)
    files.sync_directory(directory)
    for suffix in BESIDE_SUFFIXES:
        if file_name(base_offset, suffix + SWAP_SUFFIX) in there:
            path = f"{directory}/{file_name(base_offset, suffix)}"
            files.rename(path + SWAP_SUFFIX, path)
    files.sync_directory(directory)
    files.rename(swapped, swapped.removesuffix(SWAP_SUFFIX))
    files.sync_directory(directory)


def _end_of(log: File, size: int) -> int:
    end_offset = -1
    for _, header in walk(log, 0, size):
        end_offset = header.last_offset + 1
    return end_offset
