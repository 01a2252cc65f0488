"""Bringing a log's files to the disk while the loop goes on appending."""

from collections.abc import Callable, Sequence

from headrace.storage.files import Files


class FlushJob:
    """Everything that the log held when the job was made. `run` may be called in another thread, once."""

    __slots__ = ("_directories", "_files", "_on_error", "_syncers", "cuts", "end_offset", "error", "is_done")

    def __init__(
        self,
        files: Files,
        end_offset: int,
        cuts: int,
        syncers: Sequence[Callable[[], None]],
        directories: Sequence[str],
        on_error: Callable[[OSError], None],
    ) -> None:
        """`directories` are those in which names appeared."""
        self._files = files
        self._syncers = syncers
        self._directories = directories
        self._on_error = on_error
        self.end_offset = end_offset
        self.cuts = cuts
        self.is_done = False
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            for sync in self._syncers:
                sync()
            for directory in self._directories:
                self._files.sync_directory(directory)
        except OSError as error:
            # Pages that could not be written may look clean from now on: a second try would prove nothing.
            self.error = error
            self._on_error(error)
            raise
        self.is_done = True
