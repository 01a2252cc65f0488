"""What lets the first batch of a transaction into a partition: its coordinator was asked, and no marker came since.

A late batch, of a transaction that has ended, would otherwise open one that nobody ends. `Verified` is compared by
identity: whatever ends or opens a transaction of the producer makes the next question begin with a new one, so that
an answer to an older question is worth nothing (ABA).
"""

from typing import Final

VERIFYING_MAX = 1_000
"""Producers of one partition that are asked about at a time, or were in vain; beyond it the oldest are forgotten."""


class Verified:
    __slots__ = ("epoch", "lowest_sequence", "since_ms")

    def __init__(self, epoch: int, sequence: int, now_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.since_ms = now_ms


class VerifyFirst:
    """Not an error yet: the batch is to be brought again, with a `Verified`."""

    __slots__ = ()


VERIFY_FIRST: Final = VerifyFirst()

Verifying = dict[int, Verified]
"""By producer id. Kept when the answer was no: a batch that was sent before others is still due before them."""


def begin(verifying: Verifying, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Verified:
    """Questions about the same transaction share one object."""
    known = verifying.get(producer_id)
    if known is None or known.epoch < epoch:
        verifying.pop(producer_id, None)
        while len(verifying) >= VERIFYING_MAX:
            del verifying[next(iter(verifying))]
        known = verifying[producer_id] = Verified(epoch, sequence, now_ms)
    elif known.epoch == epoch:
        known.lowest_sequence = min(known.lowest_sequence, sequence)
    return known


def expire(verifying: Verifying, now_ms: int, expiration_ms: int) -> None:
    for producer_id in [pid for pid, known in verifying.items() if now_ms - known.since_ms >= expiration_ms]:
        del verifying[producer_id]
