"""Inspect (18203): what a node knows of itself, as JSON with a version."""

from headrace.wire.struct import Message
from headrace.wire.types import Bytes, Int16, String


class InspectRequest(Message, api=18203, versions=(0, 0), flexible=0):
    kind: String
    args: list[String]


class InspectResponse(Message, api=18203, versions=(0, 0), flexible=0):
    error_code: Int16 = 0
    body: Bytes = b""
