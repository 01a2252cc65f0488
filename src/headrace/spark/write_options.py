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
    batch_bytes: int | None
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
    if options.choice("kafka.acks", ("all", "-1", "0", "1")) in ("0", "1"):
        raise OptionRefused("option kafka.acks can only be all: rows that only one broker has can be lost")
    codec = options.choice("kafka.compression.type", tuple(codec.name.lower() for codec in Codec)) or "none"
    guarantee = options.choice("deliveryGuarantee", ("exactly_once", "at_least_once"))
    if guarantee is not None and guarantee != "at_least_once":
        guarantee = "exactly_once"
    if not options.flag("kafka.enable.idempotence", True) and guarantee != "at_least_once":
        raise OptionRefused("option kafka.enable.idempotence=false needs deliveryGuarantee=at_least_once")
    parsed = WriteOptions(
        bootstrap=options.bootstrap(),
        topic=topic.strip() if (topic := options.text("topic")) is not None else None,
        guarantee=guarantee,  # type: ignore[arg-type]  # one of the two choices
        scope_name=options.text("scope"),
        checkpoint=_placed(options.text("checkpointLocation")),
        codec=Codec[codec.upper()],
        batch_bytes=options.whole("kafka.batch.size"),
        transaction_ms_max=options.whole("kafka.transaction.timeout.ms") or TRANSACTION_MS_MAX,
        delivery_ms_max=options.whole("kafka.delivery.timeout.ms") or 120_000,
        request_ms_max=options.whole("kafka.request.timeout.ms") or 30_000,
        client_id=options.text("kafka.client.id") or "headrace-spark",
        foreach_batch_id=options.whole("foreachBatchId", 0),
    )
    if parsed.scope_name is not None:
        parsed.scope()
    return parsed


def _placed(checkpoint: str | None) -> str | None:
    """On the driver, where the checkpoint is there already. A path that begins in the working directory is another one
    in another directory; one that is not there is of a file system that has a home of its own."""
    if checkpoint is None or os.path.isabs(checkpoint) or not os.path.isdir(checkpoint):
        return checkpoint
    return os.path.abspath(checkpoint)


def check_columns(schema: StructType, topic: str | None) -> None:
    """OptionRefused for columns of the wrong type, or too few. Those that the sink does not know are left out."""
    found = {column.name: _COLLATION.sub("", column.dataType.simpleString()) for column in schema.fields}
    if "value" not in found:
        raise OptionRefused(f"there is no column value to write; the columns are {', '.join(found) or 'none'}")
    if topic is None and "topic" not in found:
        raise OptionRefused("no topic is named: give option topic, or a column topic")
    for name, kinds in COLUMNS.items():
        if found.get(name, kinds[0]) not in kinds:
            raise OptionRefused(f"column {name} is {' or '.join(kinds)}, not {found[name]}; cast it in the query")
