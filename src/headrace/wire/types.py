"""The vocabulary of message declarations: wire types, and how a field says since when it exists.

Annotations are the schema. `Int32` is an `int` to the type checker and four bytes to the compiler.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from headrace.model import ZERO_UUID, Buffer

NEWEST: Final = 32767
"""No version is newer: versions are 16 bits on the wire."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value of constant width, by its format character of the struct module."""

    format: str
    size: int


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 behind its length."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes behind their length; copied on decode."""


@dataclass(frozen=True, slots=True)
class Payload:
    """Record batches behind their length; never copied: a view on decode, the caller's buffer on encode."""


@dataclass(frozen=True, slots=True)
class Array:
    """Items behind their count. `item` is a wire type or a Struct class."""

    item: Any


Int8: TypeAlias = Annotated[int, Fixed("b", 1)]
Int16: TypeAlias = Annotated[int, Fixed("h", 2)]
UInt16: TypeAlias = Annotated[int, Fixed("H", 2)]
Int32: TypeAlias = Annotated[int, Fixed("i", 4)]
Int64: TypeAlias = Annotated[int, Fixed("q", 8)]
Float64: TypeAlias = Annotated[float, Fixed("d", 8)]
Bool: TypeAlias = Annotated[bool, Fixed("?", 1)]
# Sixteen raw bytes: hashable and cheap. UUID objects would cost a microsecond each.
Uuid: TypeAlias = Annotated[bytes, Fixed("16s", 16)]
String: TypeAlias = Annotated[str, Text()]
Bytes: TypeAlias = Annotated[bytes, Blob()]
Records: TypeAlias = Annotated[Buffer, Payload()]

REQUIRED: Final[Any] = object()
"""The default of a field that has none."""

FRESH_LIST: Final[Any] = object()
"""The default of a field that starts as a list of its own."""


@dataclass(slots=True)
class Field:
    """One field of a struct in all its versions. `null_since` is the first version whose wire form may be null."""

    default: Any = REQUIRED
    since: int = 0
    until: int = NEWEST
    null_since: int | None = None
    tag: int | None = None
    name: str = ""
    type: Any = None

    def present(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable(self, version: int) -> bool:
        return self.null_since is not None and version >= self.null_since


def field(
    *,
    default: Any = REQUIRED,
    default_factory: Callable[[], list[Any]] | None = None,
    since: int = 0,
    until: int = NEWEST,
    null: int | None = None,
) -> Any:
    """A field that not every version has, or that may be null only from version `null` on."""
    return Field(default if default_factory is None else FRESH_LIST, since, until, null)


def tagged(
    tag: int,
    *,
    default: Any = REQUIRED,
    default_factory: Callable[[], list[Any]] | None = None,
    since: int = 0,
    until: int = NEWEST,
) -> Any:
    """A field that travels in the tag section, and only if it differs from its default."""
    return Field(default if default_factory is None else FRESH_LIST, since, until, None, tag)


__all__ = [
    "FRESH_LIST",
    "NEWEST",
    "REQUIRED",
    "ZERO_UUID",
    "Array",
    "Blob",
    "Bool",
    "Bytes",
    "Field",
    "Fixed",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Payload",
    "Records",
    "String",
    "Text",
    "UInt16",
    "Uuid",
    "field",
    "tagged",
]
