"""The requests of Own (18200), each written once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from headrace.own.errors import Owner
from headrace.wire.messages.own import OwnRequest, OwnResource, OwnResult

RETAIN_MS = 86_400_000
"""For so long after a loss nobody gets a generation again that somebody had: a day."""

WAIT_MS = 3_000
"""How long a broker keeps a question that waits: that of a standby, and the one that shows that we are there."""


class Op(IntEnum):
    CLAIM = 0
    RELEASE = 1
    RESUME = 2
    CLAIM_IF_UNOWNED = 3
    DESCRIBE = 4


@dataclass(frozen=True, slots=True)
class Claimer:
    """Who asks: the same in every question of one ownership."""

    group: str
    client_id: str  # of the connections that own with us
    holder: bytes  # of nobody else, ever
    exclusive: int  # bit 0 produce, bit 1 fetch

    def claim(self, generations: Mapping[str, int]) -> OwnRequest:
        return self._ask(Op.CLAIM, generations, exclusive=self.exclusive)

    def claim_if_unowned(self, resources: Iterable[str], wait_ms: int = 0) -> OwnRequest:
        return self._ask(Op.CLAIM_IF_UNOWNED, dict.fromkeys(resources, 0), exclusive=self.exclusive, wait_ms=wait_ms)

    def resume(self, generations: Mapping[str, int]) -> OwnRequest:
        return self._ask(Op.RESUME, generations)

    def release(self, generations: Mapping[str, int]) -> OwnRequest:
        return self._ask(Op.RELEASE, generations)

    def keep_alive(self, wait_ms: int) -> OwnRequest:
        return OwnRequest(group=self.group, resources=[], wait_ms=wait_ms)

    def _ask(self, op: Op, generations: Mapping[str, int], *, exclusive: int = 0, wait_ms: int = 0) -> OwnRequest:
        return OwnRequest(
            group=self.group,
            resources=[OwnResource(resource=name, generation=generations[name]) for name in sorted(generations)],
            bind_client_id=self.client_id,
            op=op,
            retain_ms=RETAIN_MS,
            exclusive=exclusive,
            wait_ms=wait_ms,
            holder=self.holder,
        )


def describe(group: str, resources: Iterable[str]) -> OwnRequest:
    """Changes nothing; without resources it asks for all that the broker knows of the group."""
    asked = [OwnResource(resource=name, generation=0) for name in sorted(resources)]
    return OwnRequest(group=group, resources=asked, op=Op.DESCRIBE)


def owner_of(result: OwnResult) -> Owner | None:
    told = result.owner
    return None if told is None else Owner(told.client_id, told.address, told.since_ms)
