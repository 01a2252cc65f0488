"""Where a follower cuts its log, so that it becomes a prefix of the leader's."""

from typing import NamedTuple, TypeAlias

from headrace.core.epochs import NO_EPOCH, EpochList


def truncation_offset(epochs: EpochList, log_end: int, epoch: int, end_offset: int) -> int:
    """The leader says that its `epoch`, the largest not above the one that we fetched last, ended at `end_offset`.

    The answer may have to be cut again after the next fetch: where we lack that epoch, we only know where our own
    largest one below it ended. Whoever cuts at the log end, too, forgets the epochs that began there.
    """
    own_epoch, own_end = epochs.end_offset_for(epoch, log_end)
    if own_epoch == NO_EPOCH:
        return min(end_offset, log_end)
    if own_epoch == epoch:
        return min(end_offset, own_end, log_end)
    return min(own_end, log_end)


class TruncateTo(NamedTuple):
    offset: int


class RestartAt(NamedTuple):
    """Nothing that is here is still at the leader: everything goes, and the log begins there."""

    offset: int


class AskEarliest(NamedTuple):
    pass


class Keep(NamedTuple):
    """The log is within the leader's; fetching goes on from its end."""


Repair: TypeAlias = TruncateTo | RestartAt | AskEarliest | Keep


def repair(log_end: int, leader_latest: int, leader_earliest: int | None) -> Repair:
    """After the leader has answered that the offset is out of its range. The earliest offset is asked for if needed."""
    if leader_latest < log_end:
        return TruncateTo(leader_latest)
    if leader_earliest is None:
        return AskEarliest()
    return RestartAt(leader_earliest) if leader_earliest > log_end else Keep()
