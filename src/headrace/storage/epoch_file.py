"""`leader-epoch-checkpoint` of a partition directory."""

from collections.abc import Sequence

from headrace.storage.checkpoints import CorruptCheckpoint, format_leader_epochs, parse_leader_epochs
from headrace.storage.files import File, Files

NAME = "leader-epoch-checkpoint"


class EpochFile:
    __slots__ = ("_files", "_is_synced", "_path", "latest")

    def __init__(self, files: Files, directory: str, latest: int, is_synced: bool) -> None:
        self._files = files
        self._path = f"{directory}/{NAME}"
        self._is_synced = is_synced
        self.latest = latest
        """The newest epoch in the file, -1 without one. An append compares it."""

    def save(self, entries: Sequence[tuple[int, int]], *, durable: bool = True) -> None:
        """If not `durable`, the next flush has to sync it."""
        self._files.replace(self._path, format_leader_epochs(entries).encode(), durable=durable)
        self._is_synced = durable
        self.latest = entries[-1][0] if entries else -1

    def take_unsynced(self) -> list[File]:
        """The file, once, if it was not synced; whoever takes it does so."""
        if self._is_synced:
            return []
        self._is_synced = True
        return [self._files.open(self._path)]


def read_epochs(files: Files, directory: str) -> tuple[tuple[int, int], ...] | None:
    """None if there is no list, or none that can be read: a power loss may have left the file without its content."""
    try:
        return parse_leader_epochs(files.read(f"{directory}/{NAME}").decode()) or None
    except (FileNotFoundError, CorruptCheckpoint, UnicodeDecodeError):
        return None
