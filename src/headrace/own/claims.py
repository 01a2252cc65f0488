"""`claim`: the way to an ownership."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Literal

from headrace.client import Outside
from headrace.model import TopicPartition
from headrace.own.claiming import BeginAgain, Claiming
from headrace.own.errors import OwnershipLost
from headrace.own.holdings import Holdings
from headrace.own.ownership import Ownership
from headrace.own.places import Places
from headrace.own.questions import Claimer

CLAIM_MS_MAX = 30_000

Resources = str | TopicPartition | Iterable[str | TopicPartition]
Exclusive = bool | Literal["produce", "fetch"]
EXCLUSIVE_BITS: Mapping[Exclusive, int] = {False: 0, "produce": 1, "fetch": 2, True: 3}


@asynccontextmanager
async def claim(
    bootstrap: str,
    group: str,
    resources: Resources,
    generation: int | Mapping[str, int] | None = None,
    wait: bool = False,
    exclusive: Exclusive = False,
    *,
    client_id: str = "headrace",
    timeout_ms: int = CLAIM_MS_MAX,
    outside: Outside | None = None,
) -> AsyncIterator[Ownership]:
    """Owns all the resources inside the context, and releases them at its end.

    A resource is a partition, "orders-0" or TopicPartition("orders", 0), or any other name. Groups do not see each
    other: a partition may have one owner in each.

    `generation=None` claims only what nobody has: AlreadyOwned names the owner, or with `wait` the claim waits its
    turn, for as long as it takes. A number takes over, whoever has it: it is the last generation that the caller knows
    of (0 resets, whatever it was); AlreadyOwned, with the current one, if that was not the last. A mapping presents
    another number for each resource.

    `exclusive` keeps everybody else out, clients that have never heard of ownership too: "produce", "fetch", or True
    for both, until it is released, or a day after its owner is gone.

    What can be tried again is tried for `timeout_ms`. `client_id` begins the client.id of the connections.
    """
    names = named(resources)
    numbers = _numbers(generation, names)
    if numbers is not None and wait:
        raise ValueError("a claim with a generation takes over at once; only generation=None waits")
    if exclusive not in EXCLUSIVE_BITS:
        raise ValueError(f"exclusive is True, False, 'produce' or 'fetch', not {exclusive!r}")
    handed = outside or Outside()
    while True:
        random = handed.random
        name, holder = f"{client_id}-{random.bits(64):016x}", random.bits(128).to_bytes(16, "big")
        claimer = Claimer(group, name, holder, EXCLUSIVE_BITS[exclusive])
        places = Places(bootstrap, claimer.client_id, handed, names)
        ownership = Ownership(bootstrap, holdings := Holdings(places, claimer, handed))
        try:
            await places.learn(timeout_ms, keep=not wait)
            await _take(Claiming(holdings, timeout_ms), names, numbers, wait)
            await _settled(ownership, wait)
            places.hand_over(ownership.cluster)
            yield ownership
            return
        except BeginAgain:
            continue
        finally:
            await ownership.cluster.close()
            await holdings.close()


async def _take(claiming: Claiming, names: list[str], numbers: dict[str, int] | None, wait: bool) -> None:
    if numbers is not None:
        await claiming.take_over(numbers)
    elif wait:
        await claiming.take_turns(names)
    else:
        await claiming.take_unowned(names)


async def _settled(ownership: Ownership, wait: bool) -> None:
    """What was lost while others were claimed is held again."""
    try:
        await ownership.regained()
    except OwnershipLost:
        if wait:
            raise BeginAgain from None
        raise


def named(resources: Resources) -> list[str]:
    """ValueError when there is none, one twice, or one without a name."""
    several = [resources] if isinstance(resources, str | TopicPartition) else list(resources)
    names = [str(one) for one in several]
    if not all(names) or not names or len(set(names)) < len(names):
        raise ValueError(f"a claim names at least one resource, and each once: {names}")
    return names


def _numbers(generation: int | Mapping[str, int] | None, names: list[str]) -> dict[str, int] | None:
    if generation is None:
        return None
    numbers = dict.fromkeys(names, generation) if isinstance(generation, int) else dict(generation)
    if set(numbers) != set(names) or any(number < 0 for number in numbers.values()):
        raise ValueError("a generation is not negative, and there is one for each resource")
    return numbers
