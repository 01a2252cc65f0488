"""Batch headers as they lie on disk, read with nothing of ours: what was really stored."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADER = struct.Struct(">qiibIhiqqqhii")


class StoredBatch(NamedTuple):
    partition: int
    base_offset: int
    codec: str
    producer_id: int
    record_count: int


def stored_batches(partitions: Path, topic: str) -> Iterator[StoredBatch]:
    for path in sorted(partitions.glob(f"{topic}-*/*.log")):
        partition = int(path.parent.name.rpartition("-")[2])
        data, at = path.read_bytes(), 0
        while at < len(data):
            header = HEADER.unpack_from(data, at)
            base_offset, length, _, magic, _, attributes, *_, producer_id, _, _, record_count = header
            assert magic == 2, f"{path} at {at}: magic {magic}"
            yield StoredBatch(partition, base_offset, CODECS[attributes & 7], producer_id, record_count)
            at += 12 + length
