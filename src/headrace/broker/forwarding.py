"""Administrative requests that reach a node which does not decide: the controller is asked the same, in its name.

What it answers is the answer. Where it is not known whether something was done, the client is told just that.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from enum import Enum, auto
from typing import Any, NamedTuple

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.controller.topics import Refusal
from headrace.core.cluster import Diff
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.wire.apis import APIS
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.struct import Message, Struct

CLIENT_ID = "headrace-forward"
"""Whoever names itself so has been forwarded once, and is not again."""
TIMEOUT_MS = 30_000
TIMEOUT_MS_MAX = 600_000
ANSWER_MS = 1_000
"""How much later than the caller's time is over the controller's answer may come."""
RETRY_S = 0.05
SEEN_S_MAX = 2.0
CREATE_VERSION = 7
BY_DEFAULT = -1

NOT_KNOWN = Refusal(ErrorCode.REQUEST_TIMED_OUT, "The controller did not say in time whether it was done")

Handle = Callable[[Broker, Request[Any]], Coroutine[Any, Any, Message]]
RefuseAll = Callable[[Any, Refusal], Message]


class Unanswered(Enum):
    NOT_KNOWN = auto()
    """It was sent, and may have been done: asked again, it would be refused as done already."""
    DECIDE_HERE = auto()
    """It was not done, and this node has become the controller."""


class _Question(NamedTuple):
    body: Message
    version: int
    timeout_ms: int


def at_controller(handle: Handle, refuse_all: RefuseAll) -> Handle:
    """The handler, wherever the controller is."""

    async def decide(broker: Broker, request: Request[Any]) -> Message:
        if broker.controller.is_controller or request.header.client_id == CLIENT_ID:
            return await handle(broker, request)
        body = request.body
        asked_ms: int = getattr(body, "timeout_ms", 0)
        timeout_ms = min(asked_ms, TIMEOUT_MS_MAX) if asked_ms > 0 else TIMEOUT_MS
        answer = await _ask(broker, _Question(body, request.version, timeout_ms))
        if isinstance(answer, Unanswered):
            return await handle(broker, request) if answer is Unanswered.DECIDE_HERE else refuse_all(body, NOT_KNOWN)
        return answer

    return decide


async def _ask(broker: Broker, question: _Question) -> Message | Unanswered:
    time = broker.loop.time
    deadline = time() + question.timeout_ms / 1000
    while time() < deadline and not broker.controller.is_controller:
        controller_id = broker.controller_id
        if controller_id in (-1, broker.node_id):
            await asyncio.sleep(RETRY_S)
            continue
        try:
            peer = await broker.peers.reach(controller_id, CLIENT_ID)
        except PeerLost:
            await asyncio.sleep(RETRY_S)
            continue
        left_ms = int((deadline - time()) * 1000) + ANSWER_MS
        response = APIS[question.body.api].response
        try:
            answer = await peer.request(question.body, response, question.version, left_ms)
        except (PeerLost, TimeoutError, ProtocolError):
            return Unanswered.NOT_KNOWN
        if set(_codes(answer)) != {ErrorCode.NOT_CONTROLLER}:
            return answer
        await asyncio.sleep(RETRY_S)
    return Unanswered.DECIDE_HERE if broker.controller.is_controller else Unanswered.NOT_KNOWN


def _codes(answer: Struct) -> Iterator[int]:
    """All that it says; a code of the whole answer counts only if it says anything."""
    for spec in answer.__fields__:
        value = getattr(answer, spec.name)
        if spec.name == "error_code":
            if value or not isinstance(answer, Message):
                yield value
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    yield from _codes(item)


async def auto_create(broker: Broker, name: str) -> ErrorCode:
    """A topic with the broker's defaults; when this returns, the image mostly holds it."""
    if broker.controller.is_controller:
        return await broker.controller.auto_create(name)
    topic = CreatableTopic(
        name=name, num_partitions=BY_DEFAULT, replication_factor=BY_DEFAULT, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    answer = await _ask(broker, _Question(request, CREATE_VERSION, TIMEOUT_MS))
    if answer is Unanswered.DECIDE_HERE:
        return await broker.controller.auto_create(name)
    if not isinstance(answer, CreateTopicsResponse) or not answer.topics:
        return ErrorCode.REQUEST_TIMED_OUT
    code = ErrorCode(answer.topics[0].error_code)
    if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return code
    await _seen(broker, name)
    return ErrorCode.NONE


async def _seen(broker: Broker, name: str) -> None:
    """The answer of another node may come before the watch tells what it did."""
    seen = asyncio.Event()

    def look(_: Diff) -> None:
        if name in broker.image.topics:
            seen.set()

    listeners = broker.controller.feed.listeners
    listeners.append(look)
    look(Diff())
    try:
        async with asyncio.timeout(SEEN_S_MAX):
            await seen.wait()
    except TimeoutError:
        pass
    finally:
        listeners.remove(look)
