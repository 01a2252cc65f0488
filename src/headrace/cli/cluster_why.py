"""`headrace cluster why`: why a replica leads a partition."""

import asyncio
from datetime import datetime
from typing import Annotated, Any

from cyclopts import Parameter

from headrace.cli import output
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.options import Bootstrap, Json
from headrace.cli.outcome import Failure
from headrace.cli.watch import administrator

Document = dict[str, Any]
ALWAYS_MS = 20 * 365 * 24 * 3_600_000
"""A replica that never began from the tier has covered all of its time."""
HEADERS = ["replica", "leads", "can lead", "local disk", "since", "bytes", "verdict", "until"]


def why(
    topic: Annotated[str, Parameter(help="The topic.")],
    partition: Annotated[int, Parameter(help="Its partition.")],
    /,
    *,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    async def ask() -> list[Document]:
        async with administrator(bootstrap) as admin:
            cluster = await admin.describe_cluster()
            if cluster.controller_id < 0:
                raise Failure("no node is the controller at present, and nobody else decides who leads")
            told = await admin.inspect("why", cluster.controller_id, [topic, str(partition)])
            found: list[Document] = told["why"]
            return found

    found = asyncio.run(ask())
    if not found:
        raise Failure(f"there is no partition {topic}-{partition}")
    if json:
        output.document(found[0])
    else:
        _show(found[0])


def _show(told: Document) -> None:
    leader = told["leader"]
    leads = f"node {leader} leads" if leader >= 0 else "nobody leads"
    output.line(f"{told['topic']}-{told['partition']}: {leads}: {told['because']}")
    if told["held_back"]:
        output.line("Leadership goes back to the first replica once that one has enough on its own disk")
    output.line(_thresholds(told))
    if told["tiered"]:
        output.line(
            "What is on their disks is as the leader last told the controller: a change takes up to "
            f"{told['report_interval_ms'] / 1000:g} s, and mere growth is not told"
        )
    output.table(HEADERS, [_row(replica) for replica in told["replicas"]])


def _thresholds(told: Document) -> str:
    if not told["tiered"]:
        return "The topic is not tiered: the log begins where its leader has it on its own disk"
    wanted = [
        f"{told[f'threshold_{unit}']} {unit}" for unit in ("ms", "bytes") if told[f"threshold_{unit}"] is not None
    ]
    if not wanted:
        return "No threshold is set: what replicas have on their own disks does not matter"
    return f"To count like any other, a replica needs {' or '.join(wanted)} on its own disk"


def _row(replica: Document) -> list[object]:
    is_known = "local_log_start" in replica
    return [
        replica["id"],
        "yes" if replica["leads"] else "no",
        "yes" if replica["can_lead"] else "no",
        f"from offset {replica['local_log_start']}" if is_known else "not known",
        _covers(replica["covers_ms"]) if is_known else "",
        replica["local_bytes"] if is_known else "",
        f"{replica['verdict']}: {replica['reason']}",
        _until(replica),
    ]


def _covers(covers_ms: int) -> str:
    return f"{covers_ms} ms" if covers_ms < ALWAYS_MS else "always"


def _until(replica: Document) -> str:
    if not replica["thin"]:
        return ""
    if replica["ends_ms"] is None:
        return "it has the bytes"
    try:
        return datetime.fromtimestamp(replica["ends_ms"] / 1000).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):  # a threshold of thousands of years
        return "no time soon"
