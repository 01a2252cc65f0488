"""DeleteTopics, versions 1-6: by name, and from 6 on by name or id."""

from collections import Counter

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.controller.topics import Refusal
from headrace.core.acl import Operation
from headrace.core.cluster import Topic
from headrace.core.internal_topics import INTERNAL_TOPICS
from headrace.errors import ErrorCode
from headrace.model import ZERO_UUID
from headrace.wire.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

DISABLED_SINCE = 3
"""Older clients do not know the code."""
NOT_KNOWN = Refusal(ErrorCode.REQUEST_TIMED_OUT, "The metadata store did not say in time whether the topic was deleted")


async def handle(broker: Broker, request: Request[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    body = request.body
    named = _asked(body)
    times = Counter((state.name, state.topic_id) for state in named)
    asked = list({(state.name, state.topic_id): state for state in named}.values())
    if not broker.config.delete_topic_enable:
        error = ErrorCode.TOPIC_DELETION_DISABLED if request.version >= DISABLED_SINCE else ErrorCode.INVALID_REQUEST
        disabled = Refusal(error, "Topics cannot be deleted: delete.topic.enable is false")
        return DeleteTopicsResponse(responses=[_refused(state, disabled) for state in asked])
    judged = [_judge(broker, request, state, times[state.name, state.topic_id]) for state in asked]
    # A topic named twice, by name and by id, is deleted once.
    doomed = list(dict.fromkeys(topic.id for topic in judged if isinstance(topic, Topic)))
    outcomes = dict(zip(doomed, await broker.controller.delete_topics(doomed, timeout_ms=body.timeout_ms), strict=True))
    results = []
    for state, verdict in zip(asked, judged, strict=True):
        if isinstance(verdict, DeletableTopicResult):
            results.append(verdict)
            continue
        outcome = outcomes[verdict.id]
        if isinstance(outcome, Refusal):
            results.append(_refused(state, outcome))
        elif outcome:
            results.append(DeletableTopicResult(name=verdict.name, topic_id=verdict.id))
        else:
            results.append(_refused(state, NOT_KNOWN if outcome is None else _unknown(state)))
    return DeleteTopicsResponse(responses=results)


def _asked(body: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return body.topics or [DeleteTopicState(name=name) for name in body.topic_names]


def refuse_all(body: DeleteTopicsRequest, refusal: Refusal) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_refused(state, refusal) for state in _asked(body)])


def _judge(
    broker: Broker, request: Request[DeleteTopicsRequest], state: DeleteTopicState, times: int
) -> Topic | DeletableTopicResult:
    by_name = state.name is not None
    if by_name == (state.topic_id != ZERO_UUID):
        return _refused(state, Refusal(ErrorCode.INVALID_REQUEST, "A topic is named either by its name or by its id"))
    if times > 1:
        return _refused(state, Refusal(ErrorCode.INVALID_REQUEST, "A topic is named twice in one request"))
    image = broker.image
    topic = image.topics.get(state.name or "") if by_name else image.topics_by_id.get(state.topic_id)
    name = state.name if topic is None else topic.name
    if name is not None and not broker.allowed(request.principal, Operation.DELETE, name):
        refusal = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{request.principal} may not delete this topic")
        # Who asks by id learns the name only if allowed to see it.
        if not by_name and broker.allowed(request.principal, Operation.DESCRIBE, name):
            return _refused(DeleteTopicState(name=name, topic_id=state.topic_id), refusal)
        return _refused(state, refusal)
    if topic is None:
        return _refused(state, _unknown(state))
    if topic.name in INTERNAL_TOPICS:
        refusal = Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {topic.name!r} is the cluster's own")
        return _refused(state, refusal)
    return topic


def _unknown(state: DeleteTopicState) -> Refusal:
    if state.name is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with this id")
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {state.name!r} does not exist")


def _refused(state: DeleteTopicState, refusal: Refusal) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=refusal.code, error_message=refusal.message
    )
