"""Who owns what, as the brokers tell it; and how it changes."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from headrace.cli.asking import Told, ask_all, say_who_is_silent
from headrace.cli.cluster import duration
from headrace.cli.outcome import Failure
from headrace.client import Admin

Row = dict[str, Any]
Key = tuple[str, str]

COLUMNS: Mapping[str, Callable[[Row], object]] = {
    "group": lambda row: row["group"],
    "resource": lambda row: row["resource"],
    "generation": lambda row: row["generation"],
    "owner": lambda row: owner(row),
    "for": lambda row: "" if row["owner"] is None else duration(row["owner"]["since_ms"]),
    "exclusive": lambda row: exclusive(row),
    "standbys": lambda row: row["standbys"],
    "refused last": lambda row: refused(row),
}


async def ask(admin: Admin, groups: Sequence[str], patience_s: float | None = None) -> Told:
    """TimeoutError when the broker that we are connected to says for so long not even who else there is."""
    async with asyncio.timeout(patience_s):
        cluster = await admin.describe_cluster()
    return await ask_all(admin, "own", cluster.brokers, groups)


async def gather(admin: Admin, groups: Sequence[str]) -> list[Row]:
    """Of all brokers that tell."""
    told = await ask(admin, groups)
    say_who_is_silent(told)
    if not told.by_node:
        raise Failure("no node has told anything")
    return rows_of(told)


def rows_of(told: Told) -> list[Row]:
    """Each with the broker that decides about it."""
    rows = [{"node": node_id, **row} for node_id, rows in told.by_node.items() for row in rows]
    return sorted(rows, key=lambda row: (row["group"], row["resource"]))


def seen(told: Told, before: Mapping[Key, Row]) -> dict[Key, Row]:
    """With what a broker told before that does not tell now: it may hang, and its owners own on."""
    unheard = {key: row for key, row in before.items() if row["node"] in told.silent}
    return {**unheard, **by_key(rows_of(told))}


def by_key(rows: Sequence[Row]) -> dict[Key, Row]:
    return {(row["group"], row["resource"]): row for row in rows}


def owner(row: Row) -> str:
    held = row["owner"]
    return "nobody" if held is None else f"{held['client_id']} at {held['address']}"


def exclusive(row: Row) -> str:
    return ", ".join(row["exclusive"])


def refused(row: Row) -> str:
    last = row["refused"]
    if last is None:
        return ""
    when = datetime.fromtimestamp(last["wall_ms"] / 1000).isoformat(" ", "seconds")
    return f"{last['client_id']} at {last['address']}, {when}"


def changes(before: Mapping[Key, Row], now: Mapping[Key, Row]) -> Iterator[Row]:
    """One for each resource whose owner, generation or last refusal is another than before."""
    at = datetime.now().isoformat(" ", "seconds")
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if what := _event(old, new):
            group, resource = key
            yield {"at": at, "group": group, "resource": resource, "event": what, "now": new, "before": old}


def sentence(change: Row) -> str:
    new: Row = change["now"] or {"owner": None, "generation": 0, "refused": None}
    about = f"{change['at']}  {change['resource']} of group {change['group']}"
    if change["event"] == "owned":
        return f"{about} is owned by {owner(new)} at generation {new['generation']}"
    if change["event"] == "refused":
        return f"{about} was refused to {refused(new)}"
    return f"{about} is owned by nobody"


def _is_owned(row: Row | None) -> bool:
    return row is not None and row["owner"] is not None


def _owner_gist(row: Row | None) -> object:
    if row is None or row["owner"] is None:
        return None
    return row["generation"], row["owner"]["client_id"], row["owner"]["address"]


def _event(old: Row | None, new: Row | None) -> str | None:
    """A resource that nobody owns is free when it is first seen; nothing happens when its generation is forgotten."""
    if _owner_gist(old) != _owner_gist(new):
        return "owned" if _is_owned(new) else "free"
    if new is None:
        return None
    if old is None:
        return "free"
    return "refused" if new["refused"] not in (None, old["refused"]) else None
