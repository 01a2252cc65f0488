"""What the claimers of a simulated world share: what they claim, and what they write down of it."""

from collections.abc import Sequence
from typing import NamedTuple

from headrace import own
from headrace.model import TopicPartition
from headrace.sim.clients import Work
from headrace.sim.history import OwnGranted, OwnReleased
from headrace.sim.observer import find
from headrace.sim.world import World
from headrace.wire.messages.own import OwnResult

GROUP = "g"
GATED = TopicPartition("o", 0)
"""Only an owner may use it, says its topic."""
EXCLUSIVE = TopicPartition("e", 0)
"""Only an owner may use it, says whoever claims it."""
PARTITIONS = (GATED, EXCLUSIVE)
LAMP = "lamp"
"""No partition: the controller knows its owner."""
CONFIGS = {GATED.topic: {"own.produce.group": GROUP, "own.fetch.group": GROUP}, EXCLUSIVE.topic: {}}


class Grant(NamedTuple):
    resource: str
    generation: int
    fence_offset: int
    leader_epoch: int

    @classmethod
    def held(cls, ownership: own.Ownership, name: str) -> "Grant":
        epoch = ownership._holdings.leader_epochs[name]
        return cls(name, ownership.generations[name], ownership.fence_offsets[name], epoch)

    @classmethod
    def answered(cls, result: OwnResult) -> "Grant":
        epoch = -1 if result.leader is None else result.leader.epoch
        return cls(result.resource, result.generation, result.fence_offset, epoch)


class Moment(NamedTuple):
    at_s: float
    leader_epoch: int
    """Of the partition that is claimed exclusively, whoever knows of it."""


class Owning:
    def __init__(self, work: Work, world: World) -> None:
        self.work = work
        self.tell = world.story.tell
        self.last: dict[str, int] = {}
        """The highest generation of each resource that anybody knows of."""
        self._world = world

    def granted(self, asked_s: float, who: str, holder: str, grant: Grant) -> None:
        history, (resource, generation, fence, _) = self.work.history, grant
        history.add(OwnGranted(asked_s, history.now_s(), holder, GROUP, *grant))
        self.last[resource] = max(self.last.get(resource, 0), generation)
        self.tell(who, f"owns {resource} at generation {generation}, from offset {fence} on")

    def unclaimed(self) -> None:
        """From the beginning until somebody claims it, everybody may use what is owned exclusively."""
        self.released([str(EXCLUSIVE)], Moment(0.0, -1))

    def released(self, resources: Sequence[str], since: Moment, generation: int = 0) -> None:
        """The gate of a topic stays closed."""
        name, history = str(EXCLUSIVE), self.work.history
        if name in resources:
            history.add(OwnReleased(since.at_s, history.now_s(), GROUP, name, generation, since.leader_epoch))

    def now(self) -> Moment:
        record = self._world.truth.partition(EXCLUSIVE)
        return Moment(self.work.history.now_s(), -1 if record is None else record.leader_epoch)

    def epoch_known_at(self, address: str, partition: TopicPartition) -> int:
        """In which that node leads the partition, as far as it knows; -1: it does not."""
        node = next(node for node in self._world.nodes if node.config.listen == address)
        hosted = find(node, partition)
        return hosted.leader_epoch if hosted is not None and hosted.is_leading else -1
