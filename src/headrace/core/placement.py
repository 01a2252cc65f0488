"""Which brokers hold the replicas of a new partition."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest


def place(
    partitions: range,
    replication_factor: int,
    brokers: Sequence[int],
    start: int,
    racks: Mapping[int, str | None] | None = None,
) -> list[tuple[int, ...]]:
    """Replicas of each partition, the preferred leader first.

    Leaders go round the brokers from `start` on. With each round the followers of a leader move one further, so that
    the load of a broker that fails is spread over all others. Where every broker has a rack, replicas are on as many
    racks as there are, or as there are replicas.
    """
    assert 0 < replication_factor <= len(brokers)
    named = {broker: rack for broker in brokers if racks and (rack := racks.get(broker)) is not None}
    if len(named) < len(brokers) or len(set(named.values())) == 1:
        return [_in_turn(start + index, replication_factor, brokers) for index in partitions]
    alternating = _alternating(brokers, named)
    return [_over_racks(_in_turn(start + i, len(brokers), alternating), replication_factor, named) for i in partitions]


def _in_turn(turn: int, replication_factor: int, brokers: Sequence[int]) -> tuple[int, ...]:
    count = len(brokers)
    leader, round_shift = turn % count, turn // count
    followers = ((leader + 1 + (round_shift + n) % (count - 1)) % count for n in range(replication_factor - 1))
    return brokers[leader], *(brokers[follower] for follower in followers)


def _alternating(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """Neighbours are on different racks, as far as there are brokers on them."""
    by_rack: dict[str, list[int]] = {}
    for broker in brokers:
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for one_of_each in rounds for broker in one_of_each if broker is not None]


def _over_racks(candidates: Sequence[int], replication_factor: int, racks: Mapping[int, str]) -> tuple[int, ...]:
    """The first of the candidates, and then the next ones of racks that hold the fewest replicas so far."""
    chosen: list[int] = []
    held = dict.fromkeys(racks.values(), 0)
    left = list(candidates)
    while len(chosen) < replication_factor:
        best = left[0] if not chosen else min(left, key=lambda broker: held[racks[broker]])
        left.remove(best)
        chosen.append(best)
        held[racks[best]] += 1
    return tuple(chosen)
