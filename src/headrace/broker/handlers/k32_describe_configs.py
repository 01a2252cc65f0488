"""DescribeConfigs, versions 1-4: settings of topics (2), of this node and of all nodes (4).

3 tells types and texts. Other kinds of resources get 42.
"""

from headrace.broker.broker import Broker
from headrace.broker.handlers.resources import BROKER, TOPIC, refused_kind
from headrace.broker.requests import Request
from headrace.controller.pacing import Pace
from headrace.controller.topics import Refusal, name_refusal
from headrace.core.acl import Operation
from headrace.core.config_entries import Entry, all_brokers_entries, broker_entries, topic_entries
from headrace.errors import ErrorCode
from headrace.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

ENTRY_US = 8


async def handle(broker: Broker, request: Request[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    results, pace = [], Pace()
    # Who names a resource many times gets it once: answers are much larger than requests.
    for asked in {(asked.resource_type, asked.resource_name): asked for asked in request.body.resources}.values():
        result = _describe(broker, request, asked)
        results.append(result)
        await pace.spend(ENTRY_US * (1 + len(result.configs)))
    return DescribeConfigsResponse(results=results)


def _describe(
    broker: Broker, request: Request[DescribeConfigsRequest], asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    entries = _entries(broker, request.principal, asked)
    if isinstance(entries, Refusal):
        return DescribeConfigsResult(
            error_code=entries.code,
            error_message=entries.message,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
    wanted = asked.configuration_keys
    return DescribeConfigsResult(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[_told(request.body, entry) for entry in entries if not wanted or entry.setting.name in wanted],
    )


def _entries(broker: Broker, principal: str, asked: DescribeConfigsResource) -> list[Entry] | Refusal:
    name = asked.resource_name
    if asked.resource_type == TOPIC:
        return _topic_entries(broker, principal, name)
    if asked.resource_type != BROKER:
        return refused_kind(asked.resource_type)
    if not broker.allowed_on_cluster(principal, Operation.DESCRIBE_CONFIGS):
        return Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{principal} may not see the cluster's settings")
    if name == "":
        return all_brokers_entries(broker.image)
    if name != str(broker.node_id):
        reason = f"This is node {broker.node_id}: it knows its own settings, and with an empty name those of all nodes"
        return Refusal(ErrorCode.INVALID_REQUEST, f"{reason}, not those of {name!r}")
    return broker_entries(broker.image, broker.node_id)


def _topic_entries(broker: Broker, principal: str, name: str) -> list[Entry] | Refusal:
    if not broker.allowed(principal, Operation.DESCRIBE_CONFIGS, name):
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{principal} may not see the settings of {name!r}")
    topic = broker.image.topics.get(name)
    if topic is not None:
        return topic_entries(broker.image, topic.overrides)
    missing = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name!r} does not exist")
    return name_refusal(name) or missing


def _told(body: DescribeConfigsRequest, entry: Entry) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if body.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=entry.setting.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=[DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms],
        config_type=entry.setting.kind,
        documentation=entry.setting.documentation if body.include_documentation else None,
    )
