"""Which brokers hold the replicas of a new partition."""

from collections.abc import Sequence


def place(partitions: range, replication_factor: int, brokers: Sequence[int], start: int) -> list[tuple[int, ...]]:
    """Replicas of each partition, the preferred leader first.

    Leaders go round the brokers from `start` on. With each round the followers of a leader move one further, so that
    the load of a broker that fails is spread over all others.
    """
    count = len(brokers)
    assert 0 < replication_factor <= count
    placed = []
    for index in partitions:
        leader = (start + index) % count
        round_shift = (start + index) // count
        followers = ((leader + 1 + (round_shift + n) % (count - 1)) % count for n in range(replication_factor - 1))
        placed.append((brokers[leader], *(brokers[follower] for follower in followers)))
    return placed
