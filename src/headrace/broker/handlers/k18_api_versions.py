"""ApiVersions, versions 0-4: what this broker speaks, from the one table in wire.apis.

A version above 4 never gets here: dispatch answers it in version 0 with error 35.
"""

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.wire.apis import APIS
from headrace.wire.messages.versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

ADVERTISED = [
    (api.key, api.advertised.start, api.advertised.stop - 1)
    for api in sorted(APIS.values(), key=lambda api: api.key)
    if api.advertised is not None
]


def handle(broker: Broker, request: Request[ApiVersionsRequest]) -> None:
    del broker
    request.reply(
        ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ADVERTISED]
        )
    )
