"""`headrace group`: list, describe, reset, delete."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from cyclopts import Parameter

from headrace.cli import output
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.group_lag import progress_of
from headrace.cli.options import Bootstrap, Json
from headrace.cli.outcome import Failure, UsageError
from headrace.cli.values import AtOffset, AtTime, Beginning, Start, parse_start
from headrace.cli.watch import administrator, watched
from headrace.client import Consumer
from headrace.client.group_admin import GroupAdmin, GroupDescription
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition

Document = dict[str, Any]
Flag = Parameter(negative=(), show_default=False)
DEAD = "Dead"


def list_groups(*, bootstrap: Bootstrap = BOOTSTRAP, json: Json = False) -> None:
    async def ask() -> list[Document]:
        async with administrator(bootstrap) as admin:
            return [listing._asdict() for listing in await admin.groups.list()]

    groups = asyncio.run(ask())
    if json:
        output.document({"groups": groups})
    elif groups:
        rows = [[group["group"], group["state"], group["protocol_type"] or "-"] for group in groups]
        output.table(["group", "state", "type"], rows)
    else:
        output.line("There is no group")


def describe(
    groups: Annotated[tuple[str, ...], Parameter(help="The groups; without any, all of them.", negative=())] = (),
    /,
    *,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    async def ask() -> list[Document]:
        async with administrator(bootstrap) as admin:
            names = groups or [listing.group for listing in await admin.groups.list()]
            topics = await admin.list_topics(internal=True)
            return [await _describe(admin.groups, bootstrap, topics, name) for name in names]

    described = asyncio.run(ask())
    if json:
        output.document({"groups": described})
        return
    for group in described:
        _show(group)


async def _describe(admin: GroupAdmin, bootstrap: str, topics: list[str], name: str) -> Document:
    group = await admin.describe(name)
    committed = await admin.offsets(name)
    if group.state == DEAD and not committed:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r} does not exist")
    owners = {partition: member for member in group.members for partition in member.partitions}
    offsets = {partition: told.offset for partition, told in committed.items()}
    progress = await progress_of(bootstrap, topics, {**dict.fromkeys(owners), **offsets}, _now_ms())
    return {
        "group": name,
        "state": group.state,
        "type": group.protocol_type,
        "assignor": group.assignor,
        "members": [_member(member) for member in group.members],
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                **told._asdict(),
                "member": owners[partition].member_id if partition in owners else None,
                "client": owners[partition].client_id if partition in owners else None,
                "host": owners[partition].host if partition in owners else None,
            }
            for partition, told in sorted(progress.items())
        ],
    }


def _member(member: Any) -> Document:
    partitions = [str(partition) for partition in member.partitions]
    return {**member._asdict(), "partitions": partitions}


def _show(group: Document) -> None:
    kind = f", {group['type']} by {group['assignor']}" if group["assignor"] else ""
    output.line(f"{group['group']}  {group['state']}{kind}, members: {len(group['members'])}")
    columns = ["topic", "partition", "committed", "end", "lag", "behind", "client", "host"]
    rows = [
        [
            told["topic"],
            told["partition"],
            _or_dash(told["committed"]),
            _or_dash(told["end"]),
            _or_dash(told["lag"]),
            "-" if told["lag_seconds"] is None else f"{told['lag_seconds']:.1f} s",
            told["client"] or "-",
            told["host"] or "-",
        ]
        for told in group["partitions"]
    ]
    if rows:
        output.table(columns, rows)
    for member in group["members"]:
        if not member["partitions"]:
            output.line(f"  without partitions: {member['client_id']} {member['host']} {member['member_id']}")


def reset(
    group: Annotated[str, Parameter(help="The group; it must have no members meanwhile.")],
    /,
    *,
    to: Annotated[
        str,
        Parameter(
            metavar="PLACE",
            allow_leading_hyphen=True,
            help="beginning, end, an offset, a time such as 2026-01-31T12:00, or -5m for five minutes ago. "
            "An offset that a partition does not have becomes its nearest one.",
        ),
    ],
    topic: Annotated[
        tuple[str, ...],
        Parameter(
            name="--topic",
            negative=(),
            show_default=False,
            help="TOPIC or TOPIC:PARTITION, several times if needed; without it all that the group has offsets of.",
        ),
    ] = (),
    dry_run: Annotated[bool, Flag, Parameter(help="Only show what would change.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    start = parse_start(to, _now_ms(), "--to")
    chosen = [_parse_topic(text) for text in topic]

    async def ask() -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, int]]:
        async with administrator(bootstrap) as admin, Consumer(bootstrap) as consumer, watched(consumer, "asking"):
            known = await admin.groups.offsets(group)
            partitions = await _chosen(consumer, chosen) if chosen else list(known)
            if not partitions:
                raise Failure(f"group {group!r} has no offsets; give --topic to say where it shall begin")
            _refuse_members(await admin.groups.describe(group))
            wanted = await _places(consumer, partitions, start)
            if not dry_run:
                await admin.groups.alter_offsets(group, wanted)
            return {p: known[p].offset if p in known else None for p in partitions}, wanted

    before, after = asyncio.run(ask())
    rows = [{"topic": p.topic, "partition": p.partition, "from": before[p], "to": after[p]} for p in sorted(after)]
    if json:
        output.document({"group": group, "dry_run": dry_run, "offsets": rows})
        return
    output.table(["topic", "partition", "from", "to"], [[_or_dash(cell) for cell in row.values()] for row in rows])
    if dry_run:
        output.say("Nothing was changed: this was a dry run")


def _refuse_members(group: GroupDescription) -> None:
    if group.members:
        clients = ", ".join(sorted({member.client_id for member in group.members}))
        raise Failure(f"group {group.group!r} has {len(group.members)} members ({clients}): stop them first")


def _parse_topic(text: str) -> tuple[str, int | None]:
    name, colon, index = text.rpartition(":")
    if not colon:
        return text, None
    if not name or not index.isdecimal():
        raise UsageError(f"--topic takes TOPIC or TOPIC:PARTITION, not {text!r}")
    return name, int(index)


async def _chosen(consumer: Consumer, chosen: Iterable[tuple[str, int | None]]) -> list[TopicPartition]:
    partitions: dict[TopicPartition, None] = {}
    for name, index in chosen:
        there = await consumer.partitions_of(name)
        if index is None:
            partitions.update(dict.fromkeys(there))
        elif TopicPartition(name, index) in there:
            partitions[TopicPartition(name, index)] = None
        else:
            raise Failure(f"topic {name!r} has {len(there)} partitions; there is no partition {index}")
    return list(partitions)


async def _places(consumer: Consumer, partitions: list[TopicPartition], start: Start) -> dict[TopicPartition, int]:
    begins = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    if isinstance(start, Beginning):
        return begins
    if isinstance(start, AtOffset):
        return {p: min(max(start.offset, begins[p]), ends[p]) for p in partitions}
    if isinstance(start, AtTime):
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, start.timestamp_ms))
        return {p: ends[p] if (at := found[p]) is None else at.offset for p in partitions}
    return ends


def delete(
    groups: Annotated[tuple[str, ...], Parameter(help="The groups.", negative=(), required=True)],
    /,
    *,
    if_exists: Annotated[bool, Flag, Parameter(help="A group that is not there is no failure.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    deleted: list[str] = []
    refused: list[KafkaError] = []

    async def ask() -> None:
        async with administrator(bootstrap) as admin:
            for group in groups:
                try:
                    await admin.groups.delete(group)
                    deleted.append(group)
                except KafkaError as error:
                    if not if_exists or error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                        refused.append(error)

    asyncio.run(ask())
    if json:
        output.document({"deleted": deleted})
    elif deleted or not refused:
        output.line(f"deleted: {', '.join(deleted) or 'nothing'}")
    if refused:
        raise Failure("; ".join(map(str, refused)))


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _now_ms() -> int:
    return int(time.time() * 1000)
