"""Kafka's `.txnindex`: the aborted transactions whose markers lie in a segment, in the order of their markers."""

import struct
from bisect import bisect_left
from collections.abc import Iterator

from headrace.core.producers import AbortedTransaction as AbortedTransaction
from headrace.model import Buffer
from headrace.storage.files import File, Files
from headrace.storage.residency import Residency

VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_OBJECT_BYTES = 256
_LAST_OFFSET = struct.Struct(">18xq")


class CorruptTransactionIndex(ValueError):
    """Bytes that are no transaction index. The text is one sentence that says what is wrong."""


def encode_entry(aborted: AbortedTransaction) -> bytes:
    return _ENTRY.pack(VERSION, *aborted)


def decode_entries(data: Buffer) -> Iterator[AbortedTransaction]:
    """All entries. An incomplete last one, as a crash leaves it, is passed over."""
    whole = len(data) // ENTRY_BYTES * ENTRY_BYTES
    last_offset = -1
    for version, *fields in _ENTRY.iter_unpack(memoryview(data)[:whole]):
        if version != VERSION:
            raise CorruptTransactionIndex(f"The transaction index has version {version}, only {VERSION} is known.")
        aborted = AbortedTransaction(*fields)
        if aborted.last_offset <= last_offset or aborted.first_offset > aborted.last_offset:
            raise CorruptTransactionIndex(f"The transaction index has an entry out of order: {aborted}.")
        last_offset = aborted.last_offset
        yield aborted


def overlapping(data: Buffer, fetch_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
    """What a reader of [fetch_offset, end_offset) must leave out, and whether no later segment can add to it."""
    found = []
    entries = range(len(data) // ENTRY_BYTES)
    begin = bisect_left(entries, fetch_offset, key=lambda at: _last_offset(data, at))
    for aborted in decode_entries(memoryview(data)[begin * ENTRY_BYTES :]):
        if aborted.first_offset < end_offset:
            found.append(aborted)
        # All transactions that began below the stable offset of an entry are decided: later entries begin above.
        if aborted.last_stable_offset >= end_offset:
            return found, True
    return found, False


def _last_offset(data: Buffer, at: int) -> int:
    return int(_LAST_OFFSET.unpack_from(data, at * ENTRY_BYTES)[0])


class TransactionIndex:
    """The file of one segment. There is none before the first abort; entries are written at once."""

    __slots__ = ("_content", "_file", "_files", "_in_memory", "_path", "size", "used")

    def __init__(self, files: Files, path: str, in_memory: Residency) -> None:
        self._files = files
        self._path = path
        self._in_memory = in_memory
        self.used = True
        self._content: bytearray | None = None
        self._file: File | None = None
        try:
            self.size = files.size(path)
        except FileNotFoundError:
            self.size = 0
        else:
            self._file = files.open(path)

    def append(self, aborted: AbortedTransaction) -> None:
        if self._file is None:
            self._file = self._files.create(self._path)
        at = self.size - self.size % ENTRY_BYTES
        entry = encode_entry(aborted)
        self._file.write(at, [entry])
        self.size = at + ENTRY_BYTES
        if self._content is not None:
            self._content += entry
            self._in_memory.admit(self, _OBJECT_BYTES + self.size)

    def overlapping(self, fetch_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Raises CorruptTransactionIndex."""
        return overlapping(self._read(), fetch_offset, end_offset)

    def truncate(self, offset: int) -> None:
        """Forget transactions whose markers lie at `offset` or later. A damaged file is for its next reader to see."""
        if not self.size:
            return
        try:
            content = self._read()
        except CorruptTransactionIndex:
            return
        entries = range(len(content) // ENTRY_BYTES)
        self._cut(bisect_left(entries, offset, key=lambda at: _last_offset(content, at)) * ENTRY_BYTES)

    def reset(self) -> None:
        self._cut(0)

    def _cut(self, size: int) -> None:
        if self._file is not None and size != self.size:
            self._file.truncate(size)
        self.size = size
        self._forget_content()

    def _read(self) -> bytearray:
        """Whole entries, looked through once."""
        self.used = True
        content = self._content
        if content is None:
            raw = b"" if self._file is None else self._file.read(0, self.size)
            content = bytearray(raw[: len(raw) - len(raw) % ENTRY_BYTES])
            for _ in decode_entries(content):
                pass
            self._content = content
            self._in_memory.admit(self, _OBJECT_BYTES + len(content))
        return content

    @property
    def file(self) -> File | None:
        """None when there is none."""
        return self._file

    def moved(self, path: str) -> None:
        """The file has another name now."""
        self._path = path
        if self._file is not None:
            self._file.close()
            self._file = self._files.open(path)

    def evict(self) -> None:
        self._content = None

    def _forget_content(self) -> None:
        self._content = None
        self._in_memory.forget(self)

    def close(self) -> None:
        self._forget_content()
        if self._file is not None:
            self._file.close()
