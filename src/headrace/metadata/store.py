"""The metadata store: keys, values, and transactions that compare before they write.

Adapters: memory.py (the model that others are tested against), sqlite.py.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

MAX_OPS = 128
"""Puts and deletes in one transaction, and compares in one: what every adapter can do."""


class KV(NamedTuple):
    key: bytes
    value: bytes
    create_rev: int
    mod_rev: int


class Cmp(NamedTuple):
    """Revision 0 means: there is no such key."""

    key: bytes
    rev: int
    field: Literal["mod", "create"] = "mod"


class Put(NamedTuple):
    key: bytes
    value: bytes


class Event(NamedTuple):
    """A key as of a revision; no value means that it was deleted."""

    key: bytes
    value: bytes | None
    mod_rev: int


class Snapshot(NamedTuple):
    kvs: list[KV]
    rev: int


class TxnResult(NamedTuple):
    """`rev` is that of the write when `ok`, else the store's current one."""

    ok: bool
    rev: int


class MetadataStoreError(Exception):
    """The store could not do it, and nothing was written. One sentence."""


class UnreadableMetadata(MetadataStoreError):
    """What stands in the store is damaged or a newer program's: trying again does not help."""


class OutcomeUnknown(Exception):
    """The transaction may have been applied, or may be applied later: its keys are in doubt."""


class MetaStore(Protocol):
    async def load(self, prefix: bytes) -> Snapshot:
        """One consistent snapshot, in order of keys."""
        ...

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
        """All of it or nothing. Every key that is written is compared too: an unfenced write is a bug."""
        ...

    async def close(self) -> None: ...


def check_txn(when: Sequence[Cmp], puts: Sequence[Put], deletes: Sequence[bytes]) -> None:
    """What adapters assert before they run a transaction."""
    written = [put.key for put in puts] + list(deletes)
    assert len(written) <= MAX_OPS and len(when) <= MAX_OPS, f"{len(written)} writes, {len(when)} compares"
    assert len(set(written)) == len(written), "a key is written twice"
    unfenced = set(written) - {compare.key for compare in when}
    assert not unfenced, f"written without a compare: {sorted(unfenced)}"


def prefix_end(prefix: bytes) -> bytes | None:
    """The first key above every key with this prefix; None when there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
