"""Headers and length prefixes. A frame handed in here is without its prefix; one handed out is ready to send."""

import struct
from typing import NamedTuple, TypeVar

from headrace.model import Buffer
from headrace.wire.apis import APIS
from headrace.wire.compiler import decode, encode_parts
from headrace.wire.primitives import skip_tags
from headrace.wire.struct import Message, ProtocolError

M = TypeVar("M", bound=Message)

_CORRELATION = struct.Struct(">i")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_CLIENT_ID_BYTES_MAX = 0x7FFF
_HEADER = struct.Struct(">hhi")
_REQUEST = struct.Struct(">ihhi")
_RESPONSE = struct.Struct(">ii")
_RESPONSE_FLEXIBLE = struct.Struct(">iix")
# Every request that is spoken -> whether tags follow the client id.
_FLEXIBLE = {
    (key, version): version >= api.request.flexible_header for key, api in APIS.items() for version in api.versions
}


class RequestHeader(NamedTuple):
    """`body_at` is where the body begins in the frame, or -1 if the API or its version is not spoken here."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Reads as far as can be trusted: of an unknown request only the first eight bytes mean something."""
    try:
        key, version, correlation_id = _HEADER.unpack_from(frame)
        flexible = _FLEXIBLE.get((key, version))
        if flexible is None:
            return RequestHeader(key, version, correlation_id, None, -1)
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, 8)
        client_id, pos = None, 10
        if length >= 0:
            pos += length
            client_id = str(frame[10:pos], "utf-8")
        elif length != -1:
            raise ProtocolError("the client id has a negative length")
        if flexible:
            tags = frame[pos]
            pos = skip_tags(frame, pos + 1, tags) if tags else pos + 1
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the request header is malformed: {error}") from error
    if pos > len(frame):
        raise ProtocolError("the request ends in its header")
    # As RequestHeader(...) does, in half the time.
    return tuple.__new__(RequestHeader, (key, version, correlation_id, client_id, pos))


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    parts = encode_parts(message, version)
    name = None if client_id is None else client_id.encode()
    if name is not None and len(name) > _CLIENT_ID_BYTES_MAX:
        raise ProtocolError(f"a client id of {len(name)} bytes does not fit its header")
    header = _CLIENT_ID_LENGTH.pack(-1) if name is None else _CLIENT_ID_LENGTH.pack(len(name)) + name
    if version >= message.flexible:
        header += b"\0"
    size = 8 + len(header) + sum(map(len, parts))
    parts[0] = b"".join((_REQUEST.pack(size, message.api, version, correlation_id), header, parts[0]))
    return parts


def encode_response(message: Message, version: int, correlation_id: int) -> list[Buffer]:
    parts = encode_parts(message, version)
    first = parts[0]
    size = len(first) if len(parts) == 1 else sum(map(len, parts))
    if version >= message.flexible_header:
        parts[0] = _RESPONSE_FLEXIBLE.pack(size + 5, correlation_id) + first
    else:
        parts[0] = _RESPONSE.pack(size + 4, correlation_id) + first
    return parts


def decode_response(cls: type[M], version: int, frame: Buffer) -> tuple[int, M]:
    """The correlation id and the body."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        pos = skip_tags(frame, 5, frame[4]) if version >= cls.flexible_header else 4
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"the response header is malformed: {error}") from error
    return correlation_id, decode(cls, version, frame, pos)
