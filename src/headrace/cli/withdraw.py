"""`headrace node withdraw`: a node that is known to be dead leaves the cluster at once."""

import asyncio

from headrace.cli import output
from headrace.cli.outcome import Failure
from headrace.cli.values import absolute_directories, absolute_metadata
from headrace.withdrawal import Ending, NotWithdrawn, Withdrawn
from headrace.withdrawal import withdraw as withdraw_incarnation

TIMEOUT_S = 10.0

SENTENCES = {
    Ending.WITHDRAWN: "Node {id} is withdrawn: others take over what it led",
    Ending.GONE: "Node {id} is not registered: there is nothing to withdraw",
    Ending.ANOTHER: "Another incarnation of node {id} is registered, and stays",
    Ending.NEVER: "Node {id} has never been registered from this directory: there is nothing to withdraw",
}


def withdraw(*, data: str, metadata: str, json: bool = False) -> int:
    try:
        done = _withdraw(absolute_directories(data), absolute_metadata(metadata))
    except NotWithdrawn as refused:
        raise Failure(str(refused)) from None
    if json:
        output.document({"id": done.node_id, "withdrawn": done.ending is Ending.WITHDRAWN})
    else:
        output.line(SENTENCES[done.ending].format(id=done.node_id))
    return 0


def withdraw_dead(data: str, metadata: str) -> str:
    """The same for whoever has waited for the process: why it could not be done, or nothing."""
    try:
        _withdraw(data, metadata)
    except NotWithdrawn as refused:
        return str(refused)
    return ""


def _withdraw(data: str, metadata: str) -> Withdrawn:
    return asyncio.run(withdraw_incarnation(data, metadata, TIMEOUT_S))
