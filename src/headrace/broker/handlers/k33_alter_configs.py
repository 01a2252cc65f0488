"""AlterConfigs, versions 0-2: replaces all settings of a resource; what is not named falls back to its default."""

from headrace.broker.broker import Broker
from headrace.broker.handlers.resources import Alteration, alter, refused
from headrace.broker.requests import Request
from headrace.controller.config_changes import EditsOf
from headrace.controller.configs import replacement
from headrace.controller.topics import Refusal
from headrace.wire.messages.configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse


async def handle(broker: Broker, request: Request[AlterConfigsRequest]) -> AlterConfigsResponse:
    body = request.body
    alterations = [
        Alteration(asked.resource_type, asked.resource_name, _replacement(asked)) for asked in body.resources
    ]
    return AlterConfigsResponse(responses=await alter(broker, request.principal, alterations, body.validate_only))


def refuse_all(body: AlterConfigsRequest, refusal: Refusal) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[refused(asked.resource_type, asked.resource_name, refusal) for asked in body.resources]
    )


def _replacement(asked: AlterConfigsResource) -> EditsOf:
    settings = [(setting.name, setting.value) for setting in asked.configs]
    return lambda current: replacement(current, settings)
