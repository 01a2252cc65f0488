"""Kafka's `.txnindex`: the aborted transactions whose markers lie in a segment, in the order of their markers."""

import struct
from collections.abc import Iterator

from headrace.core.producers import AbortedTransaction as AbortedTransaction
from headrace.model import Buffer

VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size


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
    for aborted in decode_entries(data):
        if aborted.last_offset >= fetch_offset and aborted.first_offset < end_offset:
            found.append(aborted)
        # All transactions that began below the stable offset of an entry are decided: later entries begin above.
        if aborted.last_stable_offset >= end_offset:
            return found, True
    return found, False
