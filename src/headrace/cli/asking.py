"""What every node of a cluster knows of itself, asked of all at once."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.cli import output
from headrace.client import Admin, BrokerDescription
from headrace.errors import ErrorCode, KafkaError

NODE_MS_MAX = 3_000
"""A node that hangs is still registered for a while: it must not keep people from seeing the others."""

Document = dict[str, Any]


class Told(NamedTuple):
    by_node: Mapping[int, list[Document]]
    silent: Mapping[int, str]
    """Nodes that did not tell, and why."""


async def ask_all(admin: Admin, kind: str, nodes: Sequence[BrokerDescription], args: Sequence[str] = ()) -> Told:
    """`kind` is also the name of what is told."""
    answers = await asyncio.gather(*(_ask_one(admin, kind, node.node_id, args) for node in nodes))
    by_node, silent = {}, {}
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, str):
            silent[node.node_id] = answer
        else:
            by_node[node.node_id] = answer
    return Told(by_node, silent)


async def _ask_one(admin: Admin, kind: str, node_id: int, args: Sequence[str]) -> list[Document] | str:
    try:
        found = await admin.inspect(kind, node_id, args, timeout_ms=NODE_MS_MAX)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return "it is no node of Headrace"
        return error.message
    told = found[kind]
    assert isinstance(told, list)
    return told


def say_who_is_silent(told: Told) -> None:
    for node_id, why in told.silent.items():
        output.say(f"headrace: node {node_id} does not tell: {why}")
