"""What becomes of a claim, given what is known of the resource at one instant. Nothing here changes anything."""

from enum import IntEnum
from typing import NamedTuple

from headrace.core.ownership import Entry, Identity, Peer
from headrace.errors import ErrorCode

GENERATION_MAX = 2**31 - 1
FIRST_GENERATION = 1
RESET = 0


class Op(IntEnum):
    CLAIM = 0
    RELEASE = 1
    RESUME = 2
    CLAIM_IF_UNOWNED = 3
    DESCRIBE = 4


class Action(IntEnum):
    REFUSE = 0
    GRANT = 1
    KEEP = 2
    """It is the claimer's already: nothing changes."""
    SHARE = 3
    """It is being granted to the claimer already: the same answer is due."""
    JOIN = 4
    """Another connection of the same owner."""


class Decision(NamedTuple):
    """`generation` is the granted one, or with a refusal that which stands in the way."""

    action: Action
    generation: int
    error: ErrorCode = ErrorCode.NONE
    resumes: bool = False


class Known(NamedTuple):
    """Of one resource: generations are 0 where there is none."""

    live: int
    live_identity: Identity | None
    is_mine: bool
    is_confirmed: bool
    retained: int
    retained_identity: Identity | None

    @property
    def generation(self) -> int:
        return self.live or self.retained


def look(entry: Entry | None, peer: Peer, now_ms: int) -> Known:
    if entry is None:
        return Known(0, None, False, True, 0, None)
    tenure, record = entry.tenure, entry.retained(now_ms)
    return Known(
        live=0 if tenure is None else tenure.generation,
        live_identity=None if tenure is None else tenure.identity,
        is_mine=tenure is not None and peer in tenure.peers,
        is_confirmed=tenure is None or tenure.is_confirmed,
        retained=0 if record is None else record.generation,
        retained_identity=None if record is None else Identity(record.principal, record.holder),
    )


def decide(op: Op, generation: int, identity: Identity, known: Known) -> Decision:
    """Of a claim, a claim if unowned or a resume."""
    if known.is_mine and not known.is_confirmed:
        return Decision(Action.SHARE, known.live)
    if op is Op.RESUME:
        return _resume(generation, identity, known)
    if op is Op.CLAIM_IF_UNOWNED:
        if known.live:
            return Decision(Action.KEEP, known.live) if known.is_mine else _refuse(known.live)
        return _after(known.retained)
    if generation == RESET:
        return Decision(Action.GRANT, FIRST_GENERATION)
    standing = known.generation
    if generation < standing:
        return _refuse(standing)
    if known.is_mine:
        return Decision(Action.KEEP, known.live)
    return _after(max(standing, generation) if standing else 0)


def _refuse(generation: int) -> Decision:
    return Decision(Action.REFUSE, generation, ErrorCode.ILLEGAL_GENERATION)


def _after(standing: int) -> Decision:
    """One above, so that two who both hold the number that stood cannot send each other away for ever."""
    if standing >= GENERATION_MAX:
        return Decision(Action.REFUSE, standing, ErrorCode.POLICY_VIOLATION)
    return Decision(Action.GRANT, standing + 1)


def _resume(generation: int, identity: Identity, known: Known) -> Decision:
    """Never takes anything away from anybody else, and may be repeated."""
    holder = known.live_identity if known.live else known.retained_identity
    if not generation or generation != known.generation or holder is None or not identity.is_same(holder):
        return _refuse(known.generation)
    if known.is_mine:
        return Decision(Action.KEEP, known.live)
    return Decision(Action.GRANT, generation, resumes=True)


def decide_token(number: int, identity: Identity, known: Known) -> Decision:
    """Of a produce or fetch by such a client: the higher number wins, whoever comes first."""
    if known.is_mine:
        return Decision(Action.KEEP, known.live)
    if number > known.generation:
        return Decision(Action.GRANT, number)
    if number == known.generation:
        if known.live and known.live_identity == identity:
            return Decision(Action.JOIN, number)
        if not known.live and known.retained_identity == identity:
            return Decision(Action.GRANT, number, resumes=True)
    return _refuse(known.generation)
