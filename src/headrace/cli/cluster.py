"""`headrace cluster`: status, elect, failed, sessions."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from headrace.cli import cluster_status, output
from headrace.cli.asking import ask_all, say_who_is_silent
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.options import Bootstrap, Json
from headrace.cli.outcome import Failure, UsageError
from headrace.cli.watch import administrator
from headrace.client import Admin, Elected, ElectionType
from headrace.errors import ErrorCode
from headrace.model import TopicPartition

Document = dict[str, Any]
Columns = Mapping[str, Callable[[Document], object]]
Flag = Parameter(negative=(), show_default=False)

FAILED: Columns = {
    "node": lambda failed: failed["node"],
    "topic": lambda failed: failed["topic"],
    "partition": lambda failed: failed["partition"],
    "epoch": lambda failed: failed["leader_epoch"],
    "since": lambda failed: datetime.fromtimestamp(failed["since_ms"] / 1000).isoformat(" ", "seconds"),
    "reason": lambda failed: failed["reason"],
}

SESSIONS: Columns = {
    "node": lambda session: session["node"],
    "fetcher": lambda session: fetcher(session),
    "from": lambda session: session.get("client", ""),
    "session": lambda session: session["id"],
    "fetches": lambda session: session["epoch"],
    "partitions": lambda session: session["partitions"],
    "with news": lambda session: session["ready"],
    "with errors": lambda session: session["faults"],
    "waits": lambda session: "yes" if session["parked"] else "no",
    "age": lambda session: duration(session["age_ms"]),
    "last fetch": lambda session: duration(session["idle_ms"]),
}


def status(
    topics: Annotated[tuple[str, ...], Parameter(help="Only these topics.", negative=())] = (),
    /,
    *,
    amiss: Annotated[bool, Flag, Parameter(help="Of the partitions, only those where something is amiss.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    async def ask() -> Document:
        async with administrator(bootstrap) as admin:
            return await cluster_status.gather(admin, topics)

    found = asyncio.run(ask())
    if not json:
        cluster_status.show(found, amiss)
        return
    if amiss:
        found["partitions"] = list(filter(cluster_status.is_amiss, found["partitions"]))
    output.document(found)


def elect(
    *,
    topic: Annotated[str | None, Parameter(help="The topic; without it all partitions of all topics.")] = None,
    partition: Annotated[int | None, Parameter(help="Its partition; without it all of the topic.")] = None,
    kind: Annotated[
        Literal["preferred", "unclean"],
        Parameter(
            name="--type",
            help="preferred: the first replica leads again. unclean: where nobody leads, any replica that is there "
            "does, and what it lacks is lost.",
        ),
    ] = "preferred",
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    if topic is None and (partition is not None or kind == "unclean"):
        reason = "records may be lost" if partition is None else "it has no partition otherwise"
        raise UsageError(f"give --topic too: {reason}")

    async def ask() -> list[Elected]:
        async with administrator(bootstrap) as admin:
            chosen = None if topic is None else await _chosen(admin, topic, partition)
            return await admin.elect_leaders(ElectionType[kind.upper()], chosen)

    elected = asyncio.run(ask())
    if json:
        rows = [{**e._asdict(), "error": None if e.error is ErrorCode.NONE else e.error.name} for e in elected]
        output.document({"elections": rows})
    elif elected:
        output.table(["topic", "partition", "outcome"], [[e.topic, e.partition, _outcome(e)] for e in elected])
    else:
        output.line("Every partition is led by its first replica")
    _fail_for(elected)


async def _chosen(admin: Admin, topic: str, partition: int | None) -> list[TopicPartition]:
    if partition is not None:
        return [TopicPartition(topic, partition)]
    (described,) = await admin.describe_topics([topic])
    return [TopicPartition(topic, p.partition) for p in described.partitions]


def _outcome(elected: Elected) -> str:
    return "elected" if elected.error is ErrorCode.NONE else elected.message or elected.error.name


def _fail_for(elected: list[Elected]) -> None:
    refused = [e for e in elected if e.error not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)]
    if refused:
        first = refused[0]
        raise Failure(
            f"{len(refused)} of {len(elected)} partitions have no new leader; "
            f"{first.topic}-{first.partition}: {_outcome(first)} [{first.error.name}, {int(first.error)}]"
        )


def failed(*, bootstrap: Bootstrap = BOOTSTRAP, json: Json = False) -> None:
    _tell("failed", FAILED, "No node has given up a partition", bootstrap, json)


def sessions(*, bootstrap: Bootstrap = BOOTSTRAP, json: Json = False) -> None:
    _tell("sessions", SESSIONS, "Nobody has a fetch session", bootstrap, json)


def _tell(kind: str, columns: Columns, nothing: str, bootstrap: str, as_json: bool) -> None:
    async def ask() -> list[Document]:
        async with administrator(bootstrap) as admin:
            cluster = await admin.describe_cluster()
            told = await ask_all(admin, kind, cluster.brokers)
            say_who_is_silent(told)
            if not told.by_node:
                raise Failure("no node has told anything")
            return [{"node": node_id, **row} for node_id, rows in told.by_node.items() for row in rows]

    rows = asyncio.run(ask())
    if as_json:
        output.document({kind: rows})
    elif rows:
        output.table(list(columns), [[cell(row) for cell in columns.values()] for row in rows])
    else:
        output.line(nothing)


def fetcher(session: Document) -> str:
    """Who fetches: a follower is a node, and everybody else a consumer."""
    replica_id = session["replica_id"]
    return f"node {replica_id}" if replica_id >= 0 else f"consumer {session.get('client_id', '')}".rstrip()


def duration(milliseconds: int) -> str:
    seconds = max(0, milliseconds) // 1000
    if seconds < 60:
        return f"{max(0, milliseconds) / 1000:.1f} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds // 60 % 60} min"
