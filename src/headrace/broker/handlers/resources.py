"""What requests about settings name: kinds of resources, and alterations of them."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from headrace.broker.broker import Broker
from headrace.controller.config_changes import EditsOf
from headrace.controller.topics import Refusal, name_refusal
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.wire.messages.configs import AlterConfigsResourceResponse

TOPIC = 2
BROKER = 4
DIGITS_MAX = 10

NOT_KNOWN = Refusal(
    ErrorCode.REQUEST_TIMED_OUT, "The metadata store did not say in time whether the settings were changed"
)


class Alteration(NamedTuple):
    kind: int
    name: str
    edits_of: EditsOf


def refused_kind(kind: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_REQUEST, f"Resources of type {kind} have no settings here, only topics and brokers"
    )


def refused(kind: int, name: str, refusal: Refusal) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=refusal.code, error_message=refusal.message or None, resource_type=kind, resource_name=name
    )


async def alter(
    broker: Broker, principal: str, alterations: Sequence[Alteration], validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    """Each resource by itself: one that is refused does not hold up the others."""
    times = Counter((kind, name) for kind, name, _ in alterations)
    responses = []
    for alteration in alterations:
        kind, name, _ = alteration
        if times[kind, name] > 1:
            verdict = Refusal(ErrorCode.INVALID_REQUEST, "A resource is named twice in one request")
        else:
            verdict = await _alter(broker, principal, alteration, validate_only)
        responses.append(refused(kind, name, verdict))
    return responses


async def _alter(broker: Broker, principal: str, alteration: Alteration, validate_only: bool) -> Refusal:
    kind, name, edits_of = alteration
    if kind == TOPIC:
        if not broker.allowed(principal, Operation.ALTER_CONFIGS, name):
            return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{principal} may not change the settings of {name!r}")
        refusal = name_refusal(name)
        if refusal is not None:
            return refusal
        done = await broker.controller.alter_topic_settings(name, edits_of, validate_only=validate_only)
        return done or NOT_KNOWN
    if kind != BROKER:
        return refused_kind(kind)
    if not broker.allowed_on_cluster(principal, Operation.ALTER_CONFIGS):
        return Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{principal} may not change the cluster's settings")
    if name and not (name.isascii() and name.isdigit() and len(name) <= DIGITS_MAX):
        return Refusal(ErrorCode.INVALID_REQUEST, f"A broker is named by its number, or by nothing for all: {name!r}")
    broker_id = int(name) if name else None
    done = await broker.controller.alter_broker_settings(broker_id, edits_of, validate_only=validate_only)
    return done or NOT_KNOWN
