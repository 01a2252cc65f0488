"""`headrace topic`: create, list, describe, alter, delete."""

import asyncio
from base64 import urlsafe_b64encode
from typing import Annotated, Any

from cyclopts import Parameter

from headrace.cli import output
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.options import Bootstrap, Json, Settings
from headrace.cli.outcome import Failure, UsageError
from headrace.cli.values import parse_settings
from headrace.cli.watch import administrator, watched
from headrace.client import ConfigSource, Consumer, NewTopic, Resource, ResourceType, TopicDescription
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition

Name = Annotated[str, Parameter(help="The topic.")]
Names = Annotated[tuple[str, ...], Parameter(help="The topics.", negative=())]
Document = dict[str, Any]
OFFSETS = "looking offsets up"

COLUMNS = {
    "partition": "partition",
    "leader": "leader",
    "leader_epoch": "epoch",
    "replicas": "replicas",
    "isr": "in sync",
    "start_offset": "start",
    "end_offset": "end",
}


def create(
    topic: Name,
    /,
    *,
    partitions: Annotated[int, Parameter(help="How many; -1 leaves it to the broker.")] = -1,
    replication_factor: Annotated[int, Parameter(help="Copies of each; -1 leaves it to the broker.")] = -1,
    settings: Settings = (),
    if_not_exists: Annotated[
        bool, Parameter(negative=(), show_default=False, help="A topic that is there already is no failure.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    new = NewTopic(topic, partitions, replication_factor, parse_settings(settings))

    async def ask() -> Document:
        async with administrator(bootstrap) as admin:
            try:
                await admin.create_topics([new])
            except KafkaError as error:
                if not if_not_exists or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            (described,) = await admin.describe_topics([topic])
            return _summary(described)

    made = asyncio.run(ask())
    _tell(made, f"{topic} is there, partitions: {made['partitions']}", json)


def list_topics(*, bootstrap: Bootstrap = BOOTSTRAP, json: Json = False) -> None:
    async def ask() -> list[Document]:
        async with administrator(bootstrap) as admin:
            return [_summary(topic) for topic in await admin.describe_topics(await admin.list_topics())]

    topics = asyncio.run(ask())
    if json:
        output.document({"topics": topics})
    elif topics:
        output.table(["topic", "partitions", "id"], [[t["name"], t["partitions"], t["id"]] for t in topics])


def describe(topics: Names = (), /, *, bootstrap: Bootstrap = BOOTSTRAP, json: Json = False) -> None:
    described = asyncio.run(_describe(topics, bootstrap))
    if json:
        output.document({"topics": described})
        return
    for topic in described:
        output.line(f"{topic['name']}  id {topic['id']}")
        for key, value in topic["settings"].items():
            output.line(f"  {key}={value}")
        rows = [[_cell(partition[name]) for name in COLUMNS] for partition in topic["partitions"]]
        output.table(list(COLUMNS.values()), rows)


def alter(
    topic: Name,
    /,
    *,
    partitions: Annotated[int | None, Parameter(help="How many from now on; never fewer than before.")] = None,
    settings: Settings = (),
    unset: Annotated[
        tuple[str, ...],
        Parameter(negative=(), show_default=False, metavar="KEY", help="Back to the default; several times if needed."),
    ] = (),
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    changes = parse_settings(settings)
    if partitions is None and not changes and not unset:
        raise UsageError("there is nothing to alter: give --partitions, --set or --unset")

    async def ask() -> Document:
        async with administrator(bootstrap) as admin:
            if changes or unset:
                await admin.alter_configs(Resource(ResourceType.TOPIC, topic), set=changes, delete=unset)
            if partitions is not None:
                await admin.create_partitions({topic: partitions})
            (described,) = await admin.describe_topics([topic])
            return _summary(described)

    _tell(asyncio.run(ask()), f"{topic} is altered", json)


def delete(
    topics: Annotated[tuple[str, ...], Parameter(help="The topics.", negative=(), required=True)],
    /,
    *,
    if_exists: Annotated[
        bool, Parameter(negative=(), show_default=False, help="A topic that is not there is no failure.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    deleted: list[str] = []
    refused: list[KafkaError] = []

    async def ask() -> None:
        async with administrator(bootstrap) as admin:
            for topic in topics:
                try:
                    await admin.delete_topics([topic])
                    deleted.append(topic)
                except KafkaError as error:
                    if not if_exists or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        refused.append(error)

    asyncio.run(ask())
    if deleted or not refused:
        _tell({"deleted": deleted}, f"deleted: {', '.join(deleted) or 'nothing'}", json)
    if refused:
        raise Failure("; ".join(map(str, refused)))


async def _describe(topics: tuple[str, ...], bootstrap: str) -> list[Document]:
    async with administrator(bootstrap) as admin, Consumer(bootstrap) as consumer, watched(consumer, OFFSETS):
        described = await admin.describe_topics(topics or await admin.list_topics())
        partitions = [TopicPartition(topic.name, p.partition) for topic in described for p in topic.partitions]
        starts = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        settings = await admin.describe_configs([Resource(ResourceType.TOPIC, topic.name) for topic in described])
    own = {
        resource.name: {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}
        for resource, entries in settings.items()
    }
    return [
        {
            "name": topic.name,
            "id": _readable(topic.topic_id),
            "settings": own.get(topic.name, {}),
            "partitions": [
                {
                    **partition._asdict(),
                    "start_offset": starts.get(TopicPartition(topic.name, partition.partition)),
                    "end_offset": ends.get(TopicPartition(topic.name, partition.partition)),
                }
                for partition in topic.partitions
            ],
        }
        for topic in described
    ]


def _summary(topic: TopicDescription) -> Document:
    return {"name": topic.name, "id": _readable(topic.topic_id), "partitions": len(topic.partitions)}


def _readable(topic_id: bytes) -> str:
    """As Kafka's tools write it."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def _tell(document: Document, sentence: str, json: bool) -> None:
    if json:
        output.document(document)
    else:
        output.line(sentence)
