"""What `MemoryFiles` is made of: contents and directories, each with the state that would survive a power loss."""

from collections.abc import Callable
from typing import TypeAlias

SECTOR_BYTES = 512
"""Disks write a sector whole or not at all, and sectors in any order."""

Survives: TypeAlias = Callable[[], bool]
"""Asked for each thing that was not synced: whether it reached the disk nevertheless."""


class Inode:
    """The content of a file. `data` is what processes see."""

    __slots__ = ("_before", "_synced_bytes", "data", "modified_ms")

    def __init__(self, now_ms: int) -> None:
        self.data = bytearray()
        self.modified_ms = now_ms
        self._synced_bytes = 0
        # Sector number -> what it held at the last sync, for sectors that were there then and changed since.
        self._before: dict[int, bytes] = {}

    def write(self, position: int, content: bytes, now_ms: int) -> None:
        if not content:
            return
        end = position + len(content)
        self._remember(position, end)
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        self.data[position:end] = content
        self.modified_ms = now_ms

    def truncate(self, size: int, now_ms: int) -> None:
        self._remember(min(size, len(self.data)), max(size, len(self.data)))
        if size <= len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.modified_ms = now_ms

    def _remember(self, start: int, end: int) -> None:
        for sector in range(start // SECTOR_BYTES, (min(end, self._synced_bytes) + SECTOR_BYTES - 1) // SECTOR_BYTES):
            at = sector * SECTOR_BYTES
            if at < self._synced_bytes and sector not in self._before:
                self._before[sector] = bytes(self.data[at : min(at + SECTOR_BYTES, self._synced_bytes)])

    def sync(self) -> None:
        self._before.clear()
        self._synced_bytes = len(self.data)

    def lose_power(self, survives: Survives) -> None:
        seen = self.data
        durable = bytearray(seen[: self._synced_bytes].ljust(self._synced_bytes, b"\0"))
        for sector, content in self._before.items():
            at = sector * SECTOR_BYTES
            durable[at : at + len(content)] = content
        length_survives = survives()
        size = len(seen) if length_survives else self._synced_bytes
        if len(durable) > size:
            del durable[size:]
        durable.extend(bytes(size - len(durable)))
        changed = set(self._before) | set(range(self._synced_bytes // SECTOR_BYTES, -(-len(seen) // SECTOR_BYTES)))
        for sector in sorted(changed):
            at = sector * SECTOR_BYTES
            end = min(at + SECTOR_BYTES, size, len(seen))
            if at < end and survives():
                durable[at:end] = seen[at:end]
        self.data = durable
        self.sync()


class Directory:
    """Names. `entries` is what processes see."""

    __slots__ = ("_synced", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self._synced: dict[str, Node] = {}

    @property
    def size_bytes(self) -> int:
        """Of all files below."""
        return sum(len(node.data) if isinstance(node, Inode) else node.size_bytes for node in self.entries.values())

    def sync(self) -> None:
        self._synced = dict(self.entries)

    def sync_all(self) -> None:
        self.sync()
        for node in self.entries.values():
            if isinstance(node, Directory):
                node.sync_all()
            else:
                node.sync()

    def lose_power(self, survives: Survives) -> None:
        seen = dict(self.entries)
        for name in sorted(seen.keys() | self._synced.keys()):
            now, durable = seen.get(name), self._synced.get(name)
            node = now if now is durable or survives() else durable
            if node is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = node
        self._keep_renamed(seen)
        self.sync()
        for node in self.entries.values():
            node.lose_power(survives)

    def _keep_renamed(self, seen: "dict[str, Node]") -> None:
        """File systems rename in one step: what was there under an old name is there under that, or under the new."""
        lost = set(self._synced.values()) - set(self.entries.values())
        for name, node in seen.items():
            if node in lost:
                self.entries[name] = node


Node: TypeAlias = Inode | Directory
