"""What the logs of one directory share."""

from collections.abc import Callable, Iterable

from headrace.storage.files import Files
from headrace.storage.residency import Residency
from headrace.storage.trash import Trash

DELETED_SUFFIX = ".deleted"
DELETE_SUFFIX = "-delete"
NAME_BYTES_MAX = 255
INDEX_BYTES_IN_MEMORY_MAX = 64 << 20


class Shared:
    """`before_first_change` runs once, before anything that the last clean stop wrote is no longer true.

    `before_loss` runs before recovery cuts off more than a batch in the middle of which the process died.
    """

    __slots__ = (
        "_before_first_change",
        "before_loss",
        "files",
        "indexes_in_memory",
        "is_unchanged",
        "on_lowered_recovery_point",
        "trash",
    )

    def __init__(
        self,
        files: Files,
        *,
        index_bytes_in_memory_max: int = INDEX_BYTES_IN_MEMORY_MAX,
        before_first_change: Callable[[], None] | None = None,
        on_lowered_recovery_point: Callable[[], None] | None = None,
        before_loss: Callable[[], None] = lambda: None,
    ) -> None:
        self.files = files
        self.indexes_in_memory = Residency(index_bytes_in_memory_max)
        self._before_first_change = before_first_change
        self.on_lowered_recovery_point = on_lowered_recovery_point
        self.before_loss = before_loss
        self.is_unchanged = before_first_change is not None
        self.trash = Trash(files)

    def changing(self) -> None:
        if self._before_first_change is not None:
            self._before_first_change()
            self._before_first_change = None
        self.is_unchanged = False

    def discard(self, paths: Iterable[str], delay_ms: int) -> None:
        for path in paths:
            self.files.rename(path, path + DELETED_SUFFIX)
            self.trash.put(path + DELETED_SUFFIX, delay_ms)

    def discard_directory(self, directory: str, unique: str, delay_ms: int) -> None:
        """Under the name that Kafka gives to a partition directory on its way out.

        Not synced: a topic of ten thousand partitions would hold up everybody. If power is lost now, the old name is
        back, and its topic id tells that it belongs to nobody.
        """
        parent, _, name = directory.rpartition("/")
        suffix = f".{unique}{DELETE_SUFFIX}"
        # A topic's name may be as long as a file's.
        gone = f"{parent}/{name[: NAME_BYTES_MAX - len(suffix)]}{suffix}"
        self.files.rename(directory, gone)
        self.trash.put(gone, delay_ms)
