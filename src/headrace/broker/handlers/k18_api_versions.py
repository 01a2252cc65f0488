"""ApiVersions, versions 0-4: what this broker speaks, from the one table in wire.apis.

A version above 4 never gets here: dispatch answers it in version 0 with error 35.
"""

import re

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.errors import ErrorCode
from headrace.wire.apis import APIS
from headrace.wire.messages.versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

ADVERTISED = [
    (api.key, api.advertised.start, api.advertised.stop - 1)
    for api in sorted(APIS.values(), key=lambda api: api.key)
    if api.advertised is not None
]

OWN_KEY = 18200
SOFTWARE_SINCE = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?", re.ASCII)


def handle(broker: Broker, request: Request[ApiVersionsRequest]) -> None:
    body, config = request.body, broker.config
    names = (body.client_software_name, body.client_software_version)
    if request.version >= SOFTWARE_SINCE and not all(_SOFTWARE.fullmatch(name) for name in names):
        request.reply(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[]))
        return
    hides_own = not (config.own_enable and config.own_advertise)
    request.reply(
        ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, low, high in ADVERTISED
                if key != OWN_KEY or not hides_own
            ]
        )
    )
