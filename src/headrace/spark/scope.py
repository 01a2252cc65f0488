"""Whose batches are counted together: a query's id, and a scope beside it.

A checkpoint that is copied keeps its query's id. So by default the scope is made of where the checkpoint lies and the
topic that is written: a copy counts for itself, and nothing of it is taken for what the original has written already.
At which place a query was first seen, and at which it first wrote a topic, is kept by the brokers, for ever: one that
turns up at another is not let in before somebody has said whether it was moved or copied. A query may write several
topics, each under a scope of its own: whoever goes on with one of them is told the scope of that one.
"""

import re
from hashlib import sha256
from typing import NamedTuple

from headrace.client.commit_group import CommitGroups
from headrace.core import transactional_id
from headrace.core.transactional_id import SCOPE_FORM, is_scope
from headrace.spark.option_values import OptionRefused

PLACES = transactional_id.PLACES
"""The scope under which the place of each query, and of each of its topics, is kept, as the run of its batch 0:
whoever comes first writes it."""

RESERVED = (PLACES, transactional_id.JOBS)
"""Scopes that nobody can be given."""

_HASH_CHARS = 16
_PATH_CHARS_MAX = 40
_LOCAL = re.compile(r"file:/*(?=/)")


class Scope(NamedTuple):
    name: str
    place: str | None = None
    """Where the checkpoint lies, hashed; None if that is not known."""
    path: str = ""
    is_given: bool = False
    """Somebody chose the name, and so knows what is counted together."""
    topic: str = ""
    """What is written, hashed."""


def scope_of(given: str | None, checkpoint: str | None, topic: str | None) -> Scope:
    """OptionRefused if it cannot be told, or not so."""
    path = None if checkpoint is None else _plain(checkpoint)
    place = None if path is None else _hashed(path)
    if given is not None:
        if not is_scope(given) or given in RESERVED:
            raise OptionRefused(f"option scope has {SCOPE_FORM}, not {given!r}")
        return Scope(given, place, path or "", True, _hashed(topic or ""))
    if path is None:
        raise OptionRefused(
            "exactly_once needs option checkpointLocation at the sink, or option scope: a name under which the "
            "batches of this query are counted, the same after every restart. What spark.sql.streaming."
            "checkpointLocation says a sink is not told"
        )
    return Scope(_hashed(f"{path}\n{topic or ''}"), place, path, False, _hashed(topic or ""))


class MovedCheckpoint(OptionRefused):
    """A query that was seen elsewhere before."""


async def check_place(groups: CommitGroups, scope: Scope, query_id: str) -> None:
    """MovedCheckpoint if the query was seen at another place, or wrote the topic there, unless a scope is given."""
    if scope.place is None:
        return
    path = scope.path.replace(":", "%3A")[-_PATH_CHARS_MAX:]
    mine = f"{scope.place}.{'g' if scope.is_given else 'd'}.{scope.name}@{path}"
    topic = f"{query_id}/{scope.topic}"
    place, _, _, path = _read(await _first(groups, query_id, mine))
    if place != scope.place and not scope.is_given and (await groups.last(PLACES, topic)).run_id is None:
        raise MovedCheckpoint(
            f"query {query_id} was first seen with its checkpoint at ...{path}, and now at {scope.path}, where it "
            "writes what it has not written there: if the checkpoint was moved, or if it is a copy, give option "
            "scope=<a name of its own>, the same after every restart, and it writes for itself"
        )
    place, kind, name, path = _read(await _first(groups, topic, mine))
    if scope.is_given or (place == scope.place and kind == "d"):
        return
    if place == scope.place:
        raise MovedCheckpoint(
            f"query {query_id} has written this topic with option scope={name} before: give it again, or batches that "
            "are written already may be written once more; if it is another write of the same query, give it a scope "
            "of its own"
        )
    raise MovedCheckpoint(
        f"query {query_id} was first seen with its checkpoint at ...{path}, and now at {scope.path}: if the checkpoint "
        f"was moved, give option scope={name} to go on where it was; if it is a copy, give option scope=<another "
        "name>, and it writes for itself"
    )


async def _first(groups: CommitGroups, what: str, mine: str) -> str:
    """Who comes first says where it is."""
    return (await groups.commit(PLACES, what, 0, mine, [])).run_id or mine


def _read(first: str) -> tuple[str, str, str, str]:
    """The place, hashed; whether its scope was given, and which one that is; and the end of its path."""
    marks, _, path = first.replace("%3A", ":").partition("@")
    place, kind, name = marks.split(".", 2)
    return place, kind, name, path


def _plain(checkpoint: str) -> str:
    """The same for several ways to write one path."""
    path = _LOCAL.sub("", checkpoint.strip())
    return path.rstrip("/") or "/"


def _hashed(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_HASH_CHARS]
