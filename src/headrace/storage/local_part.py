"""The part of a tiered log that is on this disk: where it begins, and how it came to begin there.

In a file of the partition directory: magic, u16 version, u32 CRC-32C of the rest, i64 offset, i64 wall clock, u8. It is
there only once the tier has something that this disk has not.
"""

import struct

from crc32c import crc32c

from headrace.errors import CorruptLog
from headrace.storage.files import Files

NAME = "headrace-local-part"
MAGIC = b"HRLP"
VERSION = 1
UNKNOWN = -1

_HEAD = struct.Struct(">4sHI")
_BODY = struct.Struct(">qqB")


class LocalPart:
    __slots__ = ("_directory", "_files", "is_full", "since_ms", "start_offset")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.start_offset = UNKNOWN
        """Nothing below it is on this disk, whatever names a power cut may bring back."""
        self.since_ms = UNKNOWN
        """Wall clock: everything that was appended since then is on this disk. -1: all that this log ever got."""
        self.is_full = False
        """Local retention has dropped something here: the disk holds all that it may."""

    def begins_at(self, offset: int, *, is_full: bool | None = None) -> None:
        """Durable when it returns: the files below it may go."""
        self.start_offset = offset
        if is_full is not None:
            self.is_full = is_full
        self._write()

    def restarted_at(self, offset: int, since_ms: int) -> None:
        """The log was dropped, and goes on at `offset`, behind what the tier has."""
        self.start_offset, self.since_ms, self.is_full = offset, since_ms, False
        self._write()

    def _write(self) -> None:
        body = _BODY.pack(self.start_offset, self.since_ms, self.is_full)
        content = _HEAD.pack(MAGIC, VERSION, crc32c(body)) + body
        self._files.replace(f"{self._directory}/{NAME}", content)


def read_local_part(files: Files, directory: str, names: list[str]) -> LocalPart:
    """A file that is damaged is as good as none. CorruptLog if a newer program wrote it."""
    found = LocalPart(files, directory)
    if NAME not in names:
        return found
    content = files.read(f"{directory}/{NAME}")
    if len(content) < _HEAD.size + _BODY.size or not content.startswith(MAGIC):
        return found
    _, version, crc = _HEAD.unpack_from(content)
    if version > VERSION:
        raise CorruptLog(f"{directory}/{NAME} has format version {version}; this program knows {VERSION} and older.")
    body = content[_HEAD.size : _HEAD.size + _BODY.size]
    if crc == crc32c(body):
        found.start_offset, found.since_ms, is_full = _BODY.unpack(body)
        found.is_full = bool(is_full)
    return found
