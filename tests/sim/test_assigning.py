"""What simulated consumers tell each other is what real ones do."""

from headrace.client.group_admin import assigned_partitions
from headrace.core.group_members import subscribed_topics
from headrace.model import TopicPartition
from headrace.sim.assigning import assignment, ranges, subscription

PARTITIONS = [TopicPartition("m", index) for index in range(4)]


def test_a_subscription_names_its_topics() -> None:
    assert subscribed_topics(subscription(["m", "n"])) == frozenset({"m", "n"})


def test_an_assignment_names_its_partitions() -> None:
    several = [TopicPartition("a", 3), *PARTITIONS]
    assert assigned_partitions(assignment(several)) == several
    assert assigned_partitions(assignment([])) == []


def test_each_partition_is_in_one_range() -> None:
    for count in range(1, 7):
        told = ranges([f"member {number}" for number in range(count)], PARTITIONS)
        held = [partition for mine in told.values() for partition in assigned_partitions(mine)]
        assert len(told) == count and held == PARTITIONS
