"""What of a log is written, but not known to be on the disk."""

from collections.abc import Callable, Iterable

from headrace.storage.files import File, Files
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments


class Unsynced:
    __slots__ = ("directories", "files", "segments")

    def __init__(self, segments: Iterable[Segment], directories: Iterable[str]) -> None:
        self.segments = list(segments)
        """Complete ones; the active segment is synced with every flush anyway."""
        self.files: list[File] = []
        self.directories = set(directories)
        """Those in which names appeared or went."""

    def keep_only(self, live: Segments) -> None:
        self.segments = [segment for segment in self.segments if segment in live]

    def forget(self, path: str) -> None:
        """The file is about to go."""
        for file in self.files:
            if file.path == path:
                file.close()
        self.files = [file for file in self.files if file.path != path]

    def sync_files(self, files: Files, directory: str) -> None:
        """At once, for what must not wait for a flush."""
        if self.files:
            for file in self.files:
                file.sync()
                file.close()
            self.files = []
            files.sync_directory(directory)

    def take(self) -> tuple[list[Callable[[], None]], list[str]]:
        """Syncs for another thread, and directories to sync after them. Nothing is unsynced any more then."""
        syncers = [file.syncer() for segment in self.segments for file in segment.complete()]
        for file in self.files:
            syncers.append(file.syncer())
            file.close()
        directories = sorted(self.directories)
        self.segments, self.files, self.directories = [], [], set()
        return syncers, directories
