"""What a group asks for: answers to be sent, and what must be in the log before somebody hears of it."""

from enum import StrEnum
from typing import NamedTuple

from headrace.core.group_members import Join, Joined, JoinWaiter, Synced, SyncWaiter


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class JoinAnswer(NamedTuple):
    waiter: JoinWaiter
    result: Joined


class SyncAnswer(NamedTuple):
    waiter: SyncWaiter
    result: Synced


class Store(NamedTuple):
    """The group as it is now, with these assignments, goes to the log; then `stored` is called with `purpose`."""

    assignments: dict[str, bytes]
    purpose: "Purpose"


class Assigned(NamedTuple):
    """The leader of a generation has assigned."""

    generation: int


class Swapped(NamedTuple):
    """A static member came back under another id, and takes the place it had."""

    waiter: JoinWaiter
    old_member_id: str
    old_leader: str
    old: Join
    join: Join


class Emptied(NamedTuple):
    """The last member has left. Nobody waits for that to be known."""


Purpose = Assigned | Swapped | Emptied
Effect = JoinAnswer | SyncAnswer | Store
