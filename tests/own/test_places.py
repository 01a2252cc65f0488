"""What a resource names."""

import pytest

from headrace.model import TopicPartition
from headrace.own.places import partition_named


@pytest.mark.parametrize(
    ("resource", "partition"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("orders", None),
        ("orders-", None),
        ("-1", None),
        ("orders-01", None),
        ("orders-x", None),
        ("orders-²", None),
        ("orders-99999999999", None),
        ("the nightly backup", None),
    ],
)
def test_the_last_hyphen_splits_and_only_plain_numbers_are_partitions(
    resource: str, partition: TopicPartition | None
) -> None:
    assert partition_named(resource) == partition
