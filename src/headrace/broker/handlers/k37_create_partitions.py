"""CreatePartitions, versions 0-3: makes topics larger."""

from collections import Counter

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.controller.topics import MorePartitions, Refusal
from headrace.core.acl import Operation
from headrace.core.internal_topics import INTERNAL_TOPICS
from headrace.errors import ErrorCode
from headrace.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

NOT_KNOWN = Refusal(ErrorCode.REQUEST_TIMED_OUT, "The metadata store did not say in time whether the topic has grown")


async def handle(broker: Broker, request: Request[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.body.topics)
    results = []
    for name, asked in {topic.name: topic for topic in request.body.topics}.items():
        if times[name] > 1:
            refused: Refusal | None = Refusal(ErrorCode.INVALID_REQUEST, f"Topic {name!r} is named twice")
        elif not broker.allowed(request.principal, Operation.ALTER, name):
            refused = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{request.principal} may not alter {name!r}")
        elif name in INTERNAL_TOPICS:
            # Its partitions are found by the hash of a key: what is kept in them would be found no more.
            refused = Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {name!r} cannot grow")
        else:
            refused = await _grow(broker, request.body, asked)
        result = CreatePartitionsTopicResult(name=name)
        if refused is not None:
            result = CreatePartitionsTopicResult(name=name, error_code=refused.code, error_message=refused.message)
        results.append(result)
    return CreatePartitionsResponse(results=results)


def refuse_all(body: CreatePartitionsRequest, refusal: Refusal) -> CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in body.topics)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=refusal.code, error_message=refusal.message)
            for name in names
        ]
    )


async def _grow(broker: Broker, body: CreatePartitionsRequest, asked: CreatePartitionsTopic) -> Refusal | None:
    assignments = None if asked.assignments is None else [assigned.broker_ids for assigned in asked.assignments]
    outcome = await broker.controller.create_partitions(
        MorePartitions(asked.name, asked.count, assignments),
        validate_only=body.validate_only,
        timeout_ms=body.timeout_ms,
    )
    if outcome is None:
        return NOT_KNOWN
    return outcome if isinstance(outcome, Refusal) else None
