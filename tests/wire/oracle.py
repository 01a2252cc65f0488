"""Random messages of `kio`, a codec that others wrote, and what they should look like in ours."""

import dataclasses
import datetime
import enum
import functools
import importlib
import random
import re
import types
import typing
import uuid
from collections.abc import Callable
from io import BytesIO
from typing import Any

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer

from headrace.model import ZERO_UUID
from headrace.wire.apis import APIS
from headrace.wire.struct import Message, Struct

OWN_KEYS = range(18_200, 18_300)
PAIRS = [
    (cls, version)
    for api in APIS.values()
    if api.key not in OWN_KEYS
    for cls in (api.request, api.response)
    for version in cls.versions
]
"""Every declared message of Kafka in every version."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
CHARACTERS = "abc-._09 é€𝄞\0"


def kio_class(cls: type[Message], version: int) -> Any:
    kind = "request" if cls.__name__.endswith("Request") else "response"
    folder = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix(kind.capitalize())).lower()
    return getattr(importlib.import_module(f"kio.schema.{folder}.v{version}.{kind}"), cls.__name__)


def kio_bytes(entity: Any) -> bytes:
    out = BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def random_entity(chance: random.Random, cls: Any, items_max: int = 300) -> Any:
    """With no more items in an array than that."""
    hints = _hints(cls)
    values = {}
    for field in dataclasses.fields(cls):
        has_default = field.default is not dataclasses.MISSING
        if has_default and chance.random() < 0.2:
            values[field.name] = field.default
        else:
            values[field.name] = _value(chance, hints[field.name], field.metadata.get("kafka_type"), items_max)
    return cls(**values)


_hints = functools.cache(typing.get_type_hints)


def _value(chance: random.Random, hint: Any, kafka_type: str | None, items_max: int) -> Any:
    options = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if chance.random() < 0.3:
            return None
        hint = next(option for option in options if option is not types.NoneType)
        options = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        # Counts above 126 no longer fit one byte of a compact length.
        counts = (126, 127, 128, 300) if chance.random() < 0.02 else (0, 1, 1, 2, 3, 6)
        count = min(chance.choice(counts), items_max)
        return tuple(_value(chance, options[0], kafka_type, items_max) for _ in range(count))
    if kafka_type is None:
        return random_entity(chance, hint, items_max)
    return _primitive(chance, kafka_type)


def _primitive(chance: random.Random, kafka_type: str) -> Any:
    makers: dict[str, Callable[[], Any]] = {
        "bool": lambda: chance.random() < 0.5,
        "string": lambda: "".join(chance.choices(CHARACTERS, k=chance.choice((0, 1, 3, 9, 40, 125, 130)))),
        "uuid": lambda: uuid.UUID(int=chance.getrandbits(128)),
        "records": lambda: chance.randbytes(chance.choice((0, 1, 61, 126, 127, 1023, 1024, 17_000))),
        "error_code": lambda: chance.choice(list(KioErrorCode)),
        "timedelta_i32": lambda: datetime.timedelta(milliseconds=chance.getrandbits(31)),
        "timedelta_i64": lambda: datetime.timedelta(milliseconds=chance.getrandbits(42)),
        "bytes": lambda: chance.randbytes(chance.choice((0, 1, 126, 127, 1024))),
        "datetime_i64": lambda: EPOCH + datetime.timedelta(milliseconds=chance.getrandbits(42)),
    }
    if kafka_type in makers:
        return makers[kafka_type]()
    bits = WIDTHS[kafka_type]
    return chance.choice((0, 1, -1, (1 << bits - 1) - 1, -(1 << bits - 1), chance.getrandbits(bits - 1)))


def same(ours: Any, theirs: Any) -> bool:
    """Whether one of our values says what theirs says."""
    if isinstance(ours, Struct):
        return _same_struct(ours, theirs)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(same(mine, other) for mine, other in zip(ours, theirs, strict=True))
    return bool(ours == _plain(ours, theirs))


def _plain(ours: Any, theirs: Any) -> Any:
    if theirs is None:  # kio has None for a zero id and for "no time"
        return ZERO_UUID if isinstance(ours, bytes) else -1 if isinstance(ours, int) else None
    if ours is None and theirs == type(theirs)():  # an absent tag is a struct of defaults in kio
        return None
    if isinstance(theirs, uuid.UUID):
        return theirs.bytes
    if isinstance(theirs, enum.Enum):
        return theirs.value
    if isinstance(theirs, datetime.datetime):
        theirs -= EPOCH
    if isinstance(theirs, datetime.timedelta):
        return theirs // datetime.timedelta(milliseconds=1)
    return theirs


def _same_struct(ours: Struct, theirs: Any) -> bool:
    names = {field.name for field in dataclasses.fields(theirs)}
    for spec in ours.__fields__:
        value = getattr(ours, spec.name)
        # kio drops the unit from the names of durations.
        name = spec.name if spec.name in names else spec.name.removesuffix("_ms")
        if name not in names:
            if value != [] and value != spec.default:
                return False
        elif not same(value, getattr(theirs, name)):
            return False
        names.discard(name)
    return not names
