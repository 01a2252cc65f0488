"""The options and columns of the sink: those of Spark's own Kafka connector, and a few more."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark.sql.types import StructType

from headrace.spark import scope
from headrace.spark.given import Given
from headrace.spark.option_values import OptionRefused
from headrace.spark.scope import Scope
from headrace.wire.compression import Codec

Guarantee = Literal["exactly_once", "at_least_once"]

KNOWN = (
    *("topic", "deliveryGuarantee", "scope", "checkpointLocation", "queryName", "includeHeaders"),
    "foreachBatchId",
)
REFUSED = {
    "path": "option topic names the topic",
    "kafka.transactional.id": "each attempt at a task has its own; see deliveryGuarantee",
    "kafka.key.serializer": "keys are written as they are, strings or bytes; serialize them in the query",
    "kafka.value.serializer": "values are written as they are, strings or bytes; serialize them in the query",
    "kafka.interceptor.classes": "records are not handed to Java classes",
    "kafka.partitioner.class": "column partition says where a row goes, or else its key does",
}
TRANSACTION_MS_MAX = 900_000
"""What brokers allow unless told otherwise. A batch that takes longer is refused."""

COLUMNS = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}

_COLLATION = re.compile(r" collate \w+")
"""How strings are compared is nothing that is written."""


@dataclass(frozen=True)
class WriteOptions:
    bootstrap: str
    topic: str | None
    guarantee: Guarantee | None
    """None: the better one of those that the cluster can do."""
    scope_name: str | None
    checkpoint: str | None
    codec: Codec
    acks: int
    """-1: of all replicas in sync."""
    batch_bytes: int | None
    """0: each row is a batch of its own, as with Kafka's producers."""
    transaction_ms_max: int
    delivery_ms_max: int
    request_ms_max: int
    client_id: str
    foreach_batch_id: int | None
    """Written by `foreach_batch`: the batch of the stream that these rows are."""

    def scope(self) -> Scope:
        """OptionRefused if it cannot be told."""
        return scope.scope_of(self.scope_name, self.checkpoint, self.topic)


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """OptionRefused, with one sentence, for whatever is unknown, wrong or contradicts something else."""
    options = Given(given)
    options.check_known(KNOWN, REFUSED)
    codec = options.choice("kafka.compression.type", tuple(codec.name.lower() for codec in Codec)) or "none"
    guarantee = options.choice("deliveryGuarantee", ("exactly_once", "at_least_once"))
    if guarantee is not None and guarantee != "at_least_once":
        guarantee = "exactly_once"
    acks = _acks(options, guarantee)
    if guarantee == "at_least_once" and options.text("scope") is not None:
        raise OptionRefused(
            "option scope names what batches are counted under, and deliveryGuarantee=at_least_once counts none: leave "
            "one of the two out"
        )
    parsed = WriteOptions(
        bootstrap=options.bootstrap(),
        topic=topic.strip() if (topic := options.text("topic")) is not None else None,
        guarantee=guarantee,  # type: ignore[arg-type]  # one of the two choices
        scope_name=options.text("scope"),
        checkpoint=_placed(options.text("checkpointLocation")),
        codec=Codec[codec.upper()],
        acks=acks,
        batch_bytes=options.whole("kafka.batch.size", 0),
        transaction_ms_max=options.whole("kafka.transaction.timeout.ms") or TRANSACTION_MS_MAX,
        delivery_ms_max=options.whole("kafka.delivery.timeout.ms") or 120_000,
        request_ms_max=options.whole("kafka.request.timeout.ms") or 30_000,
        client_id=options.text("kafka.client.id") or "headrace-spark",
        foreach_batch_id=options.whole("foreachBatchId", 0),
    )
    if parsed.scope_name is not None:
        parsed.scope()
    return parsed


def _acks(options: Given, guarantee: str | None) -> int:
    """Java's producer, too, numbers its batches only where all replicas in sync have to have them."""
    text = options.choice("kafka.acks", ("all", "-1", "0", "1")) or "all"
    acks = -1 if text == "all" else int(text)
    is_numbered = options.flag("kafka.enable.idempotence", acks == -1)
    if guarantee != "at_least_once" and acks != -1:
        raise OptionRefused(
            f"option kafka.acks={acks} needs deliveryGuarantee=at_least_once: rows that only one broker has can be lost"
        )
    if guarantee != "at_least_once" and not is_numbered:
        raise OptionRefused("option kafka.enable.idempotence=false needs deliveryGuarantee=at_least_once")
    if is_numbered and acks != -1:
        raise OptionRefused(f"options kafka.enable.idempotence=true and kafka.acks={acks} contradict each other")
    return acks


def _placed(checkpoint: str | None) -> str | None:
    """On the driver, where the checkpoint is there already. A path that begins in the working directory is another one
    in another directory; one that is not there is of a file system that has a home of its own."""
    if checkpoint is None or os.path.isabs(checkpoint) or not os.path.isdir(checkpoint):
        return checkpoint
    return os.path.abspath(checkpoint)


def check_columns(schema: StructType, topic: str | None) -> None:
    """OptionRefused for columns of the wrong type, or too few. Those that the sink does not know are left out, and so
    is a column topic beside the option."""
    found = {column.name: _COLLATION.sub("", column.dataType.simpleString()) for column in schema.fields}
    if "value" not in found:
        raise OptionRefused(f"there is no column value to write; the columns are {', '.join(found) or 'none'}")
    if topic is None and "topic" not in found:
        raise OptionRefused("no topic is named: give option topic, or a column topic")
    for name, kinds in COLUMNS.items():
        is_used = name != "topic" or topic is None
        if is_used and found.get(name, kinds[0]) not in kinds:
            raise OptionRefused(f"column {name} is {' or '.join(kinds)}, not {found[name]}; cast it in the query")
