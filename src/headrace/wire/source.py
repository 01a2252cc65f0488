"""What the two writers of generated code share: lines, names and constants, and facts about a version."""

import struct
from typing import Any, NamedTuple

from headrace.wire.struct import Struct
from headrace.wire.types import FRESH_LIST, Array, Field, Fixed, Text


class Layout(NamedTuple):
    """The fields of a struct in one version: in order on the wire, tagged by ascending tag, and those it lacks."""

    body: list[Field]
    tags: list[Field]
    absent: list[Field]


class Source:
    """A function in the making. Constants become its globals."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {}
        self._names = 0

    def emit(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: Any) -> str:
        for known, other in self.scope.items():
            if other is value:
                return known
        name = self.name(prefix)
        self.scope[name] = value
        return name

    def layout(self, cls: type[Struct]) -> Layout:
        here = [spec for spec in cls.__fields__ if spec.present(self.version)]
        return Layout(
            body=[spec for spec in here if spec.tag is None],
            tags=sorted((spec for spec in here if spec.tag is not None), key=lambda spec: spec.tag or 0),
            absent=[spec for spec in cls.__fields__ if not spec.present(self.version)],
        )

    def default(self, spec: Field) -> str:
        if spec.default is FRESH_LIST:
            return "[]"
        if spec.default is None or isinstance(spec.default, int | str | float):
            return repr(spec.default)
        return self.constant("d", spec.default)

    def size_min(self, wire_type: Any, *, nullable: bool = False) -> int:
        """The fewest bytes that a value can take: what an array's count is held against."""
        if isinstance(wire_type, Fixed):
            return wire_type.size
        if isinstance(wire_type, type):
            fields = [self.size_min(f.type, nullable=f.nullable(self.version)) for f in self.layout(wire_type).body]
            return 1 if nullable else sum(fields) + self.flexible
        if self.flexible:
            return 1
        return 2 if isinstance(wire_type, Text) else 4


def classic_length(wire_type: Any) -> struct.Struct:
    """How lengths were written before compact ones: 16 bits before a string, 32 before all else."""
    return struct.Struct(">h" if isinstance(wire_type, Text) else ">i")


def fixed_run(body: list[Field], at: int) -> list[Field]:
    """The longest run of constant-width fields from there: one struct call covers it."""
    run = []
    while at < len(body) and isinstance(body[at].type, Fixed):
        run.append(body[at])
        at += 1
    return run


def is_struct_array(wire_type: Any) -> bool:
    return isinstance(wire_type, Array) and isinstance(wire_type.item, type)
