"""`headrace tier`: status, ls, verify."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from headrace.cli import output
from headrace.cli.asking import ask_all, say_who_is_silent
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.options import Bootstrap, Json
from headrace.cli.outcome import Failure
from headrace.cli.tier_verify import NOBODY, Checked, check
from headrace.cli.watch import administrator
from headrace.client import Admin, Resource, ResourceType

Document = dict[str, Any]
Topics = Annotated[tuple[str, ...], Parameter(help="Only these topics.", negative=())]
STATUS = ["topic", "partition", "epoch", "remote", "segments", "bytes", "local", "bytes", "lag", "note"]
SEGMENTS = ["topic", "partition", "offsets", "bytes", "state", "read", "object"]
UNKNOWN = "?"


def status(topics: Topics = (), /, *, bootstrap: Bootstrap = BOOTSTRAP, json: Json = False) -> None:
    async def run() -> list[Document]:
        async with administrator(bootstrap) as admin:
            wanted = await tiered(admin, topics, are_named=False)
            return with_silent(await gather(admin, topics), wanted)

    found = asyncio.run(run())
    if json:
        output.document(
            [{name: value for name, value in partition.items() if name != "segments"} for partition in found]
        )
    else:
        output.table(STATUS, [_status_row(partition) for partition in found])


def list_segments(topics: Topics = (), /, *, bootstrap: Bootstrap = BOOTSTRAP, json: Json = False) -> None:
    found = asyncio.run(_asked(bootstrap, topics))
    if json:
        output.document(found)
        return
    output.table(
        SEGMENTS,
        [_segment_row(partition, segment) for partition in found for segment in partition.get("segments", ())],
    )


def verify(
    topics: Topics = (),
    /,
    *,
    store: Annotated[
        str | None, Parameter(metavar="URL", help="Where the tier is, if not where the brokers say.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    async def run() -> Checked:
        async with administrator(bootstrap) as admin:
            expected = await tiered(admin, topics)
            return await check(await gather(admin, topics), store, lambda: gather(admin, topics), expected)

    checked = asyncio.run(run())
    if json:
        output.document(checked._asdict())
    else:
        for problem in checked.problems:
            output.line(f"{problem['topic']}-{problem['partition']}: {problem['object']}: {problem['problem']}")
        for one in checked.left_out:
            output.line(f"{one['topic']}-{one['partition']} was not checked: {one['reason']}")
        output.line(f"{checked.segments} segments, {checked.bytes:,} bytes: {summary(checked)}")
    if checked.problems:
        raise Failure("not all that is in the tier is as it should be")
    if checked.left_out:
        raise Failure("not all that is in the tier was checked")


def summary(checked: Checked) -> str:
    parts = [f"{len(checked.problems)} problems"] if checked.problems else []
    parts += [f"{len(checked.left_out)} partitions not checked"] if checked.left_out else []
    return ", ".join(parts) or ("no problem" if checked.segments else "there was nothing to check")


def with_silent(found: Sequence[Document], wanted: Iterable[tuple[str, int]]) -> list[Document]:
    """Also tiered partitions of which no node tells anything."""
    told = {(partition["topic"], partition["partition"]): partition for partition in found}
    for topic, index in wanted:
        silent = {"topic": topic, "partition": index, "leader_epoch": None, "manifest": None, "failure": NOBODY}
        told.setdefault((topic, index), silent)
    return [told[name] for name in sorted(told)]


async def tiered(admin: Admin, topics: Sequence[str], *, are_named: bool = True) -> list[tuple[str, int]]:
    """Partitions that are to have a tier: those of all tiered topics, or of `topics`, tiered or not if `are_named`."""
    described = await admin.describe_topics(topics or await admin.list_topics())
    settings = await admin.describe_configs([Resource(ResourceType.TOPIC, topic.name) for topic in described])
    wanted = {
        resource.name
        for resource, entries in settings.items()
        if any(entry.name == "remote.storage.enable" and entry.value == "true" for entry in entries)
    }
    return [
        (topic.name, partition.partition)
        for topic in described
        if (topics and are_named) or topic.name in wanted
        for partition in topic.partitions
    ]


async def _asked(bootstrap: str, topics: Sequence[str]) -> list[Document]:
    async with administrator(bootstrap) as admin:
        return await gather(admin, topics)


async def gather(admin: Admin, topics: Sequence[str]) -> list[Document]:
    """Of each partition what its leader says: of two that think they lead, the one with the newer epoch."""
    cluster = await admin.describe_cluster()
    if topics:
        await admin.describe_topics(topics)  # one that does not exist is told
    told = await ask_all(admin, "tier", cluster.brokers, topics)
    say_who_is_silent(told)
    newest: dict[tuple[str, int], Document] = {}
    for partition in (partition for partitions in told.by_node.values() for partition in partitions):
        name = partition["topic"], partition["partition"]
        if name not in newest or newest[name]["leader_epoch"] < partition["leader_epoch"]:
            newest[name] = partition
    return [newest[name] for name in sorted(newest)]


def _status_row(partition: Document) -> list[object]:
    highest = partition.get("highest_remote")
    served = [one for one in partition.get("segments", ()) if one["verdict"] == "inside"]
    is_known = "log_start" in partition
    return [
        partition["topic"],
        partition["partition"],
        UNKNOWN if partition["leader_epoch"] is None else partition["leader_epoch"],
        UNKNOWN if highest is None else _offsets(partition["log_start"], highest),
        UNKNOWN if highest is None else len(served),
        UNKNOWN if highest is None else sum(one["bytes"] for one in served),
        _offsets(partition["local_log_start"], partition["log_end"] - 1) if is_known else UNKNOWN,
        partition.get("local_bytes", UNKNOWN),
        _lag(partition),
        _note(partition),
    ]


def _lag(partition: Document) -> str:
    lag = partition.get("lag_segments")
    if lag is None:
        return UNKNOWN
    if not partition.get("copying", True):
        return "not copied"
    return f"{lag} segments, {partition['lag_bytes']} bytes" if lag else "none"


def _note(partition: Document) -> str:
    if partition["failure"]:
        return str(partition["failure"])
    others = sum(one["verdict"] not in (None, "inside") for one in partition.get("segments", ()))
    return f"{others} segments are not read" if others else ""


def _segment_row(partition: Document, segment: Document) -> list[object]:
    is_read = {"inside": "yes", None: "no"}.get(segment["verdict"], f"no: {segment['verdict']}")
    return [
        partition["topic"],
        partition["partition"],
        _offsets(segment["base_offset"], segment["end_offset"]),
        segment["bytes"],
        segment["state"].replace("_", " "),
        is_read,
        segment["object"],
    ]


def _offsets(first: int, last: int) -> str:
    return f"{first} to {last}" if first <= last else "none"
