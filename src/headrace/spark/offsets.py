"""How far a query is, as it stands in Spark's checkpoint.

`{"@init": …, "@log": …, "topic": {"0": 23}}`, keys sorted: Spark compares offsets as text. What begins with @ is no
topic. A checkpoint of Spark's own connector lacks it, and is gone on from.

`@init` says where this batch begins, for the partitions where that is not the end of the batch before: all in the
first batch, new ones later. Without it a first batch that is done again would ask anew for what was the latest offset
then. `@log` holds topic ids and leader epochs, by which it shows when a log is not the one that was read.
`@first` marks what nothing has been read from yet. `@gone` names topics that were deleted, to tell it once; they
keep their places.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.model import ZERO_UUID, TopicPartition

INIT, LOG, FIRST, GONE = "@init", "@log", "@first", "@gone"

ByPartition = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class StreamOffset:
    offsets: ByPartition
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    epochs: ByPartition = field(default_factory=dict)
    begins: ByPartition = field(default_factory=dict)
    is_first: bool = False
    gone: frozenset[str] = frozenset()

    @property
    def is_of_connector(self) -> bool:
        """Written by Spark's own, not by this source."""
        return not (self.topic_ids or self.epochs or self.begins or self.is_first)

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = dict(_nested(self.offsets))
        if self.begins:
            told[INIT] = _nested(self.begins)
        epochs = _nested(self.epochs)
        log: dict[str, Any] = {}
        for topic in sorted({partition.topic for partition in self.offsets}):
            known: dict[str, Any] = {"epochs": epochs[topic]} if topic in epochs else {}
            if self.topic_ids.get(topic, ZERO_UUID) != ZERO_UUID:
                known["id"] = self.topic_ids[topic].hex()
            if known:
                log[topic] = known
        if log:
            told[LOG] = log
        if self.is_first:
            told[FIRST] = True
        if self.gone:
            told[GONE] = sorted(self.gone)
        return dict(sorted(told.items()))

    def begin_of(self, partition: TopicPartition, before: "StreamOffset") -> int | None:
        """Where the batch that ends here begins; None if neither end says it."""
        return self.begins.get(partition, before.offsets.get(partition))

    def as_first(self) -> "StreamOffset":
        return replace(self, is_first=True)


def from_json(told: Mapping[str, Any]) -> StreamOffset:
    """ValueError for what is none."""
    try:
        log = told.get(LOG, {})
        return StreamOffset(
            offsets=_flat({topic: offsets for topic, offsets in told.items() if not topic.startswith("@")}),
            topic_ids={topic: bytes.fromhex(known["id"]) for topic, known in log.items() if "id" in known},
            epochs=_flat({topic: known["epochs"] for topic, known in log.items() if "epochs" in known}),
            begins=_flat(told.get(INIT, {})),
            is_first=bool(told.get(FIRST, False)),
            gone=frozenset(told.get(GONE, ())),
        )
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{told!r} is no offset of this source nor of Spark's Kafka connector: {error}") from None


def _nested(numbers: ByPartition) -> dict[str, dict[str, int]]:
    """Sorted as text, as Spark's own connector does."""
    nested: dict[str, dict[str, int]] = {}
    for topic, index in sorted(numbers, key=lambda partition: (partition.topic, str(partition.partition))):
        nested.setdefault(topic, {})[str(index)] = numbers[TopicPartition(topic, index)]
    return nested


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(index)): int(number)
        for topic, numbers in nested.items()
        for index, number in numbers.items()
    }
