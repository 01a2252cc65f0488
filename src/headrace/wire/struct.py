"""Message classes: one class per message for all its versions, with slots and a keyword-only constructor.

    class FetchPartition(Struct):
        partition: Int32
        current_leader_epoch: Int32 = field(default=-1, since=9)

A field that a version does not have keeps its default on decode and is left out on encode. Nothing here
touches bytes; `headrace.wire.compiler` does.
"""

import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, TypeVar, cast, dataclass_transform

from headrace.wire.errors import ProtocolError as ProtocolError
from headrace.wire.types import FRESH_LIST, NEWEST, REQUIRED, Array, Field, field, tagged


def _wire_type(annotation: Any) -> tuple[Any, bool]:
    """What an annotation means on the wire, and whether it admits None."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(annotation) if option is not types.NoneType]
        if len(options) == 1:
            return _wire_type(options[0])[0], True
    if origin is Annotated:
        return annotation.__metadata__[0], False
    if origin is list:
        return Array(_wire_type(typing.get_args(annotation)[0])[0]), False
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return annotation, False
    raise TypeError(f"{annotation!r} has no wire type")


def _declared(name: str, annotation: Any, value: Any) -> Field:
    spec = value if isinstance(value, Field) else Field(default=value)
    spec.name = name
    spec.type, optional = _wire_type(annotation)
    is_struct = isinstance(spec.type, type)
    # A tagged struct is absent or there, never null on the wire.
    if optional and spec.null_since is None and not (spec.tag is not None and is_struct):
        spec.null_since = spec.since
    has_default = spec.default is not REQUIRED
    if spec.default is not FRESH_LIST and isinstance(spec.type, Array) and has_default and spec.default is not None:
        raise TypeError(f"{name}: a list must be made afresh, use default_factory=list")
    if is_struct and has_default and spec.default is not None:
        raise TypeError(f"{name}: a struct has no default other than None")
    if not has_default and (spec.tag is not None or spec.since > 0 or spec.until < NEWEST):
        raise TypeError(f"{name}: what not every message carries needs a default")
    return spec


def _signature(fields: Iterable[Field], scope: dict[str, Any]) -> str:
    """Keyword-only parameters of all fields; their defaults go into `scope`."""
    parameters = []
    for spec in fields:
        if spec.default is REQUIRED:
            parameters.append(spec.name)
        else:
            scope[f"default_{spec.name}"] = spec.default
            parameters.append(f"{spec.name}=default_{spec.name}")
    return ", ".join(["*", *parameters]) if parameters else ""


def _stores(fields: Iterable[Field]) -> str:
    lines = ["    pass"]
    for spec in fields:
        value = f"[] if {spec.name} is FRESH else {spec.name}" if spec.default is FRESH_LIST else spec.name
        lines.append(f"    self.{spec.name} = {value}")
    return "\n".join(lines)


def _constructor(fields: tuple[Field, ...]) -> Callable[..., None]:
    """An __init__ in plain source, as fast as one written by hand."""
    scope: dict[str, Any] = {"FRESH": FRESH_LIST}
    exec(f"def __init__(self, {_signature(fields, scope)}):\n{_stores(fields)}", scope)
    init: Callable[..., None] = scope["__init__"]
    return init


S = TypeVar("S", bound="Struct")


def maker(cls: type[S]) -> type[S]:
    """A function that makes what `cls(...)` makes, from the same keywords, in two thirds of the time: Python packs
    keywords into a dict before it calls a class, and not before it calls a function. For what is made for every
    request. To the type checker it is the class itself."""
    scope: dict[str, Any] = {"FRESH": FRESH_LIST, "new": object.__new__, "cls": cls}
    signature = _signature(cls.__fields__, scope)
    exec(f"def make({signature}):\n    self = new(cls)\n{_stores(cls.__fields__)}\n    return self", scope)
    return cast("type[S]", scope["make"])


@dataclass_transform(kw_only_default=True, eq_default=True, field_specifiers=(field, tagged))
class StructType(type):
    """Turns annotations into slots, a constructor and the tuple of fields."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> "StructType":
        declared = {
            key: annotation
            for key, annotation in namespace.get("__annotations__", {}).items()
            if typing.get_origin(annotation) is not ClassVar
        }
        fields = tuple(_declared(key, hint, namespace.pop(key, REQUIRED)) for key, hint in declared.items())
        namespace["__slots__"] = tuple(declared)
        namespace["__fields__"] = fields
        namespace["__init__"] = _constructor(fields)
        return super().__new__(mcs, name, bases, namespace, **keywords)


class Struct(metaclass=StructType):
    """A group of fields inside a message."""

    __fields__: ClassVar[tuple[Field, ...]]

    def __repr__(self) -> str:
        shown = ", ".join(f"{spec.name}={getattr(self, spec.name)!r}" for spec in self.__fields__)
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, spec.name) == getattr(other, spec.name) for spec in self.__fields__)

    # Messages are mutable values: whoever wants a key takes the fields that identify them.
    __hash__ = None  # type: ignore[assignment]  # how Python spells "not hashable"


class Message(Struct):
    """The body of a request or a response. `flexible` is its first version with compact lengths and tags,
    `flexible_header` the first before which stands a header with tags. `surplus_bytes_max` is how much may follow it,
    and is ignored, because a client in wide use sends it."""

    api: ClassVar[int]
    versions: ClassVar[range]
    flexible: ClassVar[int]
    flexible_header: ClassVar[int]
    surplus_bytes_max: ClassVar[int]
    # Compiled on first use; what they compute depends on the declaration alone, so sharing them is invisible.
    decoders: ClassVar[dict[int, Callable[[Any, int], Any]]]
    encoders: ClassVar[dict[int, Callable[[Any], list[Any]]]]

    def __init_subclass__(
        cls,
        *,
        api: int,
        versions: tuple[int, int],
        flexible: int = NEWEST,
        flexible_header: int | None = None,
        surplus_bytes_max: int = 0,
    ) -> None:
        cls.api = api
        cls.versions = range(versions[0], versions[1] + 1)
        cls.flexible = flexible
        cls.flexible_header = flexible if flexible_header is None else flexible_header
        cls.surplus_bytes_max = surplus_bytes_max
        cls.decoders = {}
        cls.encoders = {}
