"""The metadata store: keys, values, and transactions that compare before they write.

Adapters: memory.py (the model that others are tested against), sqlite.py, etcd.py; opening.py tells them by their URL.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
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
    """With a lease the key goes when the lease does; without one a put takes the key out of its lease."""

    key: bytes
    value: bytes
    lease: int = 0


class Event(NamedTuple):
    """A key as of a revision; no value means that it was deleted."""

    key: bytes
    value: bytes | None
    mod_rev: int
    create_rev: int = 0


class Revision(NamedTuple):
    """All that one transaction, or the end of one lease, changed; in order of keys."""

    rev: int
    events: tuple[Event, ...]


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


class NotOffered(MetadataStoreError):
    """No store of this kind does what was asked: trying again does not help."""


class OutcomeUnknown(Exception):
    """The transaction may have been applied, or may be applied later: its keys are in doubt."""


class Compacted(Exception):
    """The store no longer knows all that happened since: load again, and watch from there."""


class Lease:
    """Made by grant(). Keeps itself alive until it is revoked or lost, or its store is closed."""

    def __init__(self, lease_id: int, ttl_ms: int, beat_sent_ms: int) -> None:
        self.id = lease_id
        self.ttl_ms = ttl_ms
        self.beat_sent_ms = beat_sent_ms
        """By the boot clock, when the last beat that was acknowledged was *sent*; the grant is the first beat."""
        self.lost = asyncio.Event()
        """The store says that the lease is gone. One that is silent says nothing: that is what is_valid() is for."""
        self.is_given_up = False
        """Its holder began to revoke it."""

    def is_valid(self, now_boot_ms: int) -> bool:
        """Whether no other can have seen it expire. Ask at each use: a timer may run late, after a pause."""
        margin_ms = max(500, self.ttl_ms // 16)
        is_fresh = now_boot_ms < self.beat_sent_ms + self.ttl_ms - margin_ms
        return is_fresh and not self.is_given_up and not self.lost.is_set()


class MetaStore(Protocol):
    async def load(self, prefix: bytes) -> Snapshot:
        """One consistent snapshot, in order of keys."""
        ...

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
        """All of it or nothing. Every key that is written is compared too: an unfenced write is a bug.

        A transaction that changes nothing (it only compares, or deletes what is absent) moves no revision. A put under
        a lease that is gone raises MetadataStoreError.
        """
        ...

    def watch(self, prefix: bytes, after_rev: int) -> AsyncGenerator[Revision, None]:
        """Every later revision that touches the prefix: whole, in order, once.

        Goes on by itself after failures and is silent meanwhile; ends when the store is closed; raises Compacted.
        """
        ...

    async def grant(self, ttl_ms: int, beat_ms: int) -> Lease: ...

    async def revoke(self, lease_id: int) -> None:
        """Deletes its keys in one revision. A lease that is gone already is no error. Raises OutcomeUnknown too."""
        ...

    async def compact(self, rev: int) -> None:
        """Forgets what was before that revision: who watches from before it gets Compacted."""
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
