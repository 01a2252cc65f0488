"""Writes the encoder of one message version as straight Python.

Small pieces are collected and joined; records go into the part list as the caller's own buffer.
"""

import struct
from typing import Any, Final

from headrace.wire.primitives import UVARINTS, Repeated
from headrace.wire.source import Source, classic_length, fixed_run
from headrace.wire.struct import Message, Struct
from headrace.wire.types import FRESH_LIST, Array, Field, Fixed, Payload, Text

PART_MIN: Final = 1024
"""Records shorter than this ride along with the bytes around them: copying them is cheaper than a part of their own."""


class EncodeWriter(Source):
    def __init__(self, version: int, *, flexible: bool) -> None:
        super().__init__(version, flexible=flexible)
        self.scope |= {"join": b"".join, "uvarints": UVARINTS}

    def message(self, cls: type[Message]) -> str:
        self.emit(0, "def encode(message):")
        self.emit(1, "parts = []; small = []; put = small.append")
        self._struct(1, "message", cls)
        self.emit(1, "parts.append(join(small))")
        self.emit(1, "return parts")
        return "\n".join(self.lines)

    def _struct(self, indent: int, var: str, cls: type[Struct]) -> None:
        body, tags, _ = self.layout(cls)
        at, closed = 0, False
        while at < len(body):
            run = fixed_run(body, at)
            if run:
                at += len(run)
                closed = self.flexible and at == len(body) and not tags
                self._fixed_run(indent, var, run, closed)
            else:
                spec = body[at]
                self._value(indent, f"{var}.{spec.name}", spec.type, spec.nullable(self.version))
                at += 1
        if tags:
            self._tags(indent, var, tags)
        elif self.flexible and not closed:
            self.emit(indent, "put(b'\\0')")

    def _fixed_run(self, indent: int, var: str, run: list[Field], closes: bool) -> None:
        # "x" packs a zero byte: no tags follow.
        codec = struct.Struct(">" + "".join(spec.type.format for spec in run) + "x" * closes)
        values = ", ".join(f"{var}.{spec.name}" for spec in run)
        self.emit(indent, f"put({self.constant('pack', codec.pack)}({values}))")

    def _is_default(self, var: str, spec: Field) -> str:
        if spec.default is FRESH_LIST:
            return f"not {var}.{spec.name}"
        return f"{var}.{spec.name} {'is' if spec.default is None else '=='} {self.default(spec)}"

    def _tags(self, indent: int, var: str, tags: list[Field]) -> None:
        """Only what differs from its default travels, by ascending tag."""
        sections, outer, size = self.name("sections"), self.name("outer"), self.name("size")
        self.emit(indent, f"if {' and '.join(self._is_default(var, spec) for spec in tags)}: put(b'\\0')")
        self.emit(indent, "else:")
        self.emit(indent + 1, f"{sections} = []; {outer} = put")
        for spec in tags:
            inner = self.name("inner")
            self.emit(indent + 1, f"if not ({self._is_default(var, spec)}):")
            self.emit(indent + 2, f"{inner} = []; put = {inner}.append")
            self._value(indent + 2, f"{var}.{spec.name}", spec.type, spec.nullable(self.version))
            self.emit(indent + 2, f"{inner} = join({inner}); {size} = len({inner})")
            self.emit(indent + 2, f"{sections}.append(uvarints[{spec.tag}] + uvarints[{size}] + {inner})")
        self.emit(indent + 1, f"put = {outer}; put(uvarints[len({sections})]); put(join({sections}))")

    def _value(self, indent: int, expression: str, wire_type: Any, nullable: bool) -> None:
        if isinstance(wire_type, Fixed):
            pack = self.constant("pack", struct.Struct(">" + wire_type.format).pack)
            self.emit(indent, f"put({pack}({expression}))")
            return
        value = self.name("v")
        self.emit(indent, f"{value} = {expression}")
        if nullable:
            self.emit(indent, f"if {value} is None: put({self._null(wire_type)})")
            self.emit(indent, "else:")
            indent += 1
        if isinstance(wire_type, type):
            if nullable:
                self.emit(indent, "put(b'\\1')")
            self._struct(indent, value, wire_type)
        elif isinstance(wire_type, Array):
            self._array(indent, value, wire_type)
        else:
            self._bytes(indent, value, wire_type)

    def _null(self, wire_type: Any) -> str:
        if isinstance(wire_type, type):
            return repr(b"\xff")
        return repr(b"\0" if self.flexible else classic_length(wire_type).pack(-1))

    def _length(self, count: str, wire_type: Any) -> str:
        if self.flexible:
            return f"uvarints[{count} + 1]"
        return f"{self.constant('pack', classic_length(wire_type).pack)}({count})"

    def _bytes(self, indent: int, value: str, wire_type: Any) -> None:
        if isinstance(wire_type, Text):
            self.emit(indent, f"{value} = {value}.encode()")
        size = self.name("n")
        self.emit(indent, f"{size} = len({value}); put({self._length(size, wire_type)})")
        if not isinstance(wire_type, Payload):
            self.emit(indent, f"put({value})")
            return
        self.emit(indent, f"if {size} < {PART_MIN}: put({value})")
        self.emit(indent, f"else: parts.append(join(small)); parts.append({value}); small.clear()")

    def _array(self, indent: int, value: str, wire_type: Array) -> None:
        item = wire_type.item
        count = self.name("n")
        self.emit(indent, f"{count} = len({value})")
        if isinstance(item, Fixed) and item.format != "16s":
            self._numbers(indent, value, item, count)
            return
        self.emit(indent, f"put({self._length(count, wire_type)})")
        if isinstance(item, Fixed):
            self.emit(indent, f"put(join({value}))")
            return
        one = self.name("one")
        self.emit(indent, f"for {one} in {value}:")
        if isinstance(item, type):
            self._struct(indent + 1, one, item)
        else:
            self._value(indent + 1, one, item, False)

    def _numbers(self, indent: int, value: str, item: Fixed, count: str) -> None:
        if not self.flexible:
            repeated = self.constant("ints", Repeated("i", item.format))
            self.emit(indent, f"put({repeated}[{count}].pack({count}, *{value}))")
            return
        short = self.constant("ints", Repeated("B", item.format))
        self.emit(indent, f"if {count} < 127: put({short}[{count}].pack({count} + 1, *{value}))")
        long = self.constant("ints", Repeated("", item.format))
        self.emit(indent, f"else: put(uvarints[{count} + 1]); put({long}[{count}].pack(*{value}))")
