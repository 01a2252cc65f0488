"""CreateTopics, versions 2-7: with settings, assignments, validate-only.

4 leaves numbers to the broker (-1), 5 answers with the topic's settings, 7 with its id.
"""

from collections import Counter

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.controller.pacing import Pace
from headrace.controller.topics import NewTopic, Refusal
from headrace.controller.writing import TopicPlan
from headrace.core.acl import Operation
from headrace.core.config_entries import topic_entries
from headrace.core.internal_topics import INTERNAL_TOPICS
from headrace.errors import ErrorCode
from headrace.model import ZERO_UUID
from headrace.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

RESULT_US = 200
NOT_KNOWN = Refusal(ErrorCode.REQUEST_TIMED_OUT, "The metadata store did not say in time whether the topic was created")


async def handle(broker: Broker, request: Request[CreateTopicsRequest]) -> CreateTopicsResponse:
    body = request.body
    named = Counter(topic.name for topic in body.topics)
    asked = {topic.name: topic for topic in body.topics}
    refused = {name: refusal for name in asked if (refusal := _refusal(broker, request, name, named[name]))}
    new = [_new_topic(topic) for name, topic in asked.items() if name not in refused]
    outcomes = await broker.controller.create_topics(new, validate_only=body.validate_only, timeout_ms=body.timeout_ms)
    created = dict(zip((topic.name for topic in new), outcomes, strict=True))
    results, pace = [], Pace()
    for name in asked:
        outcome = refused[name] if name in refused else created[name] or NOT_KNOWN
        results.append(_refused(name, outcome) if isinstance(outcome, Refusal) else _created(broker, request, outcome))
        await pace.spend(RESULT_US)
    return CreateTopicsResponse(topics=results)


def _refusal(broker: Broker, request: Request[CreateTopicsRequest], name: str, times: int) -> Refusal | None:
    if times > 1:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Topic {name!r} is named {times} times in one request")
    if name in INTERNAL_TOPICS:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {name!r} is made by the cluster itself")
    if broker.allowed_on_cluster(request.principal, Operation.CREATE):
        return None
    if broker.allowed(request.principal, Operation.CREATE, name):
        return None
    return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{request.principal} may not create topic {name!r}")


def _new_topic(asked: CreatableTopic) -> NewTopic:
    return NewTopic(
        asked.name,
        asked.num_partitions,
        asked.replication_factor,
        [(assigned.partition_index, assigned.broker_ids) for assigned in asked.assignments],
        {setting.name: setting.value for setting in asked.configs},
    )


def _refused(name: str, refusal: Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=refusal.code, error_message=refusal.message)


def refuse_all(body: CreateTopicsRequest, refusal: Refusal) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_refused(name, refusal) for name in dict.fromkeys(t.name for t in body.topics)])


def _created(broker: Broker, request: Request[CreateTopicsRequest], plan: TopicPlan) -> CreatableTopicResult:
    topic_id = ZERO_UUID if request.body.validate_only else plan.topic_id
    if not broker.allowed(request.principal, Operation.DESCRIBE_CONFIGS, plan.name):
        return CreatableTopicResult(
            name=plan.name,
            topic_id=topic_id,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=[],
        )
    return CreatableTopicResult(
        name=plan.name,
        topic_id=topic_id,
        num_partitions=len(plan.partitions),
        replication_factor=len(plan.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(name=entry.setting.name, value=entry.value, config_source=entry.source)
            for entry in topic_entries(broker.image, plan.overrides)
        ],
    )
