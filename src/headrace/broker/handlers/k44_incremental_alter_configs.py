"""IncrementalAlterConfigs, versions 0-1: sets (0), deletes (1), appends to (2), subtracts from (3) single settings."""

from headrace.broker.broker import Broker
from headrace.broker.handlers.resources import Alteration, alter, refused
from headrace.broker.requests import Request
from headrace.controller.config_changes import EditsOf
from headrace.controller.configs import Edit
from headrace.controller.topics import Refusal
from headrace.wire.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)


async def handle(broker: Broker, request: Request[IncrementalAlterConfigsRequest]) -> IncrementalAlterConfigsResponse:
    body = request.body
    alterations = [Alteration(asked.resource_type, asked.resource_name, _edits(asked)) for asked in body.resources]
    return IncrementalAlterConfigsResponse(
        responses=await alter(broker, request.principal, alterations, body.validate_only)
    )


def refuse_all(body: IncrementalAlterConfigsRequest, refusal: Refusal) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[refused(asked.resource_type, asked.resource_name, refusal) for asked in body.resources]
    )


def _edits(asked: IncrementalAlterConfigsResource) -> EditsOf:
    edits = [Edit(setting.name, setting.config_operation, setting.value) for setting in asked.configs]
    return lambda _: edits
