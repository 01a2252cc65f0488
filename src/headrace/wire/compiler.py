"""Bytes to messages and back: one function pair per (message class, version), compiled on first use."""

import linecache
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.model import Buffer
from headrace.wire.decode_writer import DecodeWriter
from headrace.wire.encode_writer import EncodeWriter
from headrace.wire.errors import Unencodable
from headrace.wire.struct import Message, ProtocolError, Struct
from headrace.wire.types import Array, Fixed

M = TypeVar("M", bound=Message)


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0) -> M:
    """The message that fills `buf` from `pos` to its end. Records in it are views of `buf`: they keep it alive,
    and are writable if it is. Whatever is wrong with the bytes, ProtocolError is what is raised."""
    # A view cannot do all that bytes can, so it has decoders of its own, under the negative keys.
    key = ~version if type(buf) is memoryview else version
    try:
        message: M = (cls.decoders.get(key) or _decoder(cls, version, key))(buf, pos)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"{cls.__name__} v{version} is malformed: {error}") from error
    return message


def encode_parts(msg: Message, version: int) -> list[Buffer]:
    """The message as few buffers to be sent one after another. Records of some size are the caller's buffer
    itself, so whoever sends must be done before they change."""
    try:
        return (msg.encoders.get(version) or _encoder(type(msg), version))(msg)
    except (struct.error, AttributeError, TypeError, UnicodeEncodeError) as error:
        # A number too wide, or None where this version has no null.
        reason = _too_wide(msg) or str(error)
        raise Unencodable(f"{type(msg).__name__} v{version} cannot carry its values: {reason}") from error


def encode(msg: Message, version: int) -> bytes:
    """The message in one piece; for what holds no records, or few."""
    return b"".join(encode_parts(msg, version))


def precompile(*classes: type[Message], decoders: bool = True, encoders: bool = True) -> None:
    """Compiles every version of these now, at half a millisecond each, so that no request pays for it. A broker
    decodes requests and encodes responses; it can leave out the rest."""
    for cls in classes:
        for version in cls.versions:
            if decoders and version not in cls.decoders:
                _decoder(cls, version, version)
            if encoders and version not in cls.encoders:
                _encoder(cls, version)


def _too_wide(msg: Struct) -> str:
    """The first number that its field has no room for, as a sentence; empty when it is something else."""
    for spec in msg.__fields__:
        value = getattr(msg, spec.name)
        wire_type = spec.type.item if isinstance(spec.type, Array) else spec.type
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Struct):
                found = _too_wide(one)
                if found:
                    return found
            elif isinstance(wire_type, Fixed) and isinstance(one, int):
                signed = wire_type.format.islower()
                low, high = (-1 << wire_type.size * 8 - 1, 1 << wire_type.size * 8 - 1) if signed else (0, 1 << 16)
                if not low <= one < high:
                    return f"{spec.name} is {one}, and must be from {low} to {high - 1}"
    return ""


def _check_version(cls: type[Message], version: int) -> None:
    if version not in cls.versions:
        raise ProtocolError(f"{cls.__name__} has no version {version}")


def _decoder(cls: type[Message], version: int, key: int) -> Callable[[Any, int], Any]:
    _check_version(cls, version)
    writer = DecodeWriter(version, flexible=version >= cls.flexible, over_view=key < 0)
    function = _compiled(f"<decode {cls.__name__} v{version}>", writer.message(cls), writer.scope, "decode")
    cls.decoders[key] = function
    return function


def _encoder(cls: type[Message], version: int) -> Callable[[Any], list[Any]]:
    _check_version(cls, version)
    writer = EncodeWriter(version, flexible=version >= cls.flexible)
    function = _compiled(f"<encode {cls.__name__} v{version}>", writer.message(cls), writer.scope, "encode")
    cls.encoders[version] = function
    return function


def _compiled(filename: str, source: str, scope: dict[str, Any], name: str) -> Callable[..., Any]:
    # Tracebacks and debuggers find the generated lines here.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function


__all__ = ["Message", "ProtocolError", "decode", "encode", "encode_parts", "precompile"]
