"""Writes the encoder of one message version as straight Python.

Small pieces are collected and joined; records go into the part list as the caller's own buffer.
"""

import struct
from typing import Any, Final

from headrace.wire.primitives import UVARINTS, repeated
from headrace.wire.source import Layout, Source, classic_length, is_struct_array
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
        """Fields that mostly say nothing are asked once, together: if none does, all that is constant in width,
        their lengths included, is one call of pack."""
        layout = self.layout(cls)
        rare = [spec for spec in layout.body if self._is_rare(spec)] + layout.tags
        holds_structs = any(is_struct_array(spec.type) and spec not in rare for spec in layout.body)
        if not rare or holds_structs:
            self._fields(indent, var, layout, quiet=False)
            return
        self.emit(indent, f"if {' and '.join(self._says_nothing(var, spec) for spec in rare)}:")
        self._fields(indent + 1, var, layout, quiet=True)
        self.emit(indent, "else:")
        self._fields(indent + 1, var, layout, quiet=False)

    def _is_rare(self, spec: Field) -> bool:
        if spec.default is FRESH_LIST:
            return True
        return spec.default is None and spec.nullable(self.version) and not isinstance(spec.type, Payload)

    def _fields(self, indent: int, var: str, layout: Layout, *, quiet: bool) -> None:
        """`quiet` promises that every rare field and every tag says nothing."""
        run: list[tuple[str, str]] = []
        for spec in layout.body:
            if isinstance(spec.type, Fixed):
                run.append((spec.type.format, f"{var}.{spec.name}"))
            elif quiet and self._is_rare(spec):
                run.append(self._nothing(spec))
            else:
                self._run(indent, run)
                run = []
                self._value(indent, f"{var}.{spec.name}", spec.type, spec.nullable(self.version))
        if self.flexible and (quiet or not layout.tags):
            run.append(("B", "0"))
        self._run(indent, run)
        if layout.tags and not quiet:
            self._tags(indent, var, layout.tags)

    def _nothing(self, spec: Field) -> tuple[str, str]:
        """The length of an empty array, or of null, as one more value to pack."""
        is_empty = spec.default is FRESH_LIST
        if isinstance(spec.type, type):
            return "b", "-1"
        if self.flexible:
            return "B", "1" if is_empty else "0"
        return classic_length(spec.type).format[1:], "0" if is_empty else "-1"

    def _run(self, indent: int, run: list[tuple[str, str]]) -> None:
        """Packs (format, value) pairs; values that are numbers here need no packing later."""
        if not run:
            return
        if all(value.lstrip("-").isdigit() for _, value in run):
            constant = struct.pack(">" + "".join(form for form, _ in run), *(int(value) for _, value in run))
            self.emit(indent, f"put({constant!r})")
            return
        # "x" packs the zero byte that says "no tags" or "null", without an argument.
        codec = struct.Struct(">" + "".join("x" if pair == ("B", "0") else pair[0] for pair in run))
        values = ", ".join(pair[1] for pair in run if pair != ("B", "0"))
        self.emit(indent, f"put({self.constant('pack', codec.pack)}({values}))")

    def _says_nothing(self, var: str, spec: Field) -> str:
        # A list that may be null is null or empty by default, and the two are written differently.
        if spec.default is FRESH_LIST and spec.nullable(self.version):
            return f"{var}.{spec.name} == []"
        return self._is_default(var, spec)

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
        if isinstance(wire_type, Text) and not nullable:
            self._bytes(indent, f"{expression}.encode()", wire_type)
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
            self._bytes(indent, f"{value}.encode()" if isinstance(wire_type, Text) else value, wire_type)

    def _null(self, wire_type: Any) -> str:
        if isinstance(wire_type, type):
            return repr(b"\xff")
        return repr(b"\0" if self.flexible else classic_length(wire_type).pack(-1))

    def _length(self, count: str, wire_type: Any) -> str:
        if self.flexible:
            return f"uvarints[{count} + 1]"
        return f"{self.constant('pack', classic_length(wire_type).pack)}({count})"

    def _bytes(self, indent: int, expression: str, wire_type: Any) -> None:
        value, size = self.name("v"), self.name("n")
        self.emit(indent, f"{value} = {expression}; {size} = len({value}); put({self._length(size, wire_type)})")
        if not isinstance(wire_type, Payload):
            self.emit(indent, f"put({value})")
            return
        self.emit(indent, f"if {size} < {PART_MIN}: put({value})")
        self.emit(indent, f"else: parts.append(join(small)); parts.append({value}); small.clear()")

    def _array(self, indent: int, value: str, wire_type: Array) -> None:
        item = wire_type.item
        if isinstance(item, Fixed) and item.format != "16s":
            self._numbers(indent, value, item)
            return
        self.emit(indent, f"put({self._length(f'len({value})', wire_type)})")
        if isinstance(item, Fixed):
            self.emit(indent, f"put(join({value}))")
            return
        one = self.name("one")
        self.emit(indent, f"for {one} in {value}:")
        if isinstance(item, type):
            self._struct(indent + 1, one, item)
        else:
            self._value(indent + 1, one, item, False)

    def _numbers(self, indent: int, value: str, item: Fixed) -> None:
        count = self.name("n")
        self.emit(indent, f"{count} = len({value})")
        if not self.flexible:
            together = self.constant("ints", repeated("i", item.format))
            self.emit(indent, f"put({together}[{count}].pack({count}, *{value}))")
            return
        short = self.constant("ints", repeated("B", item.format))
        self.emit(indent, f"if {count} < 127: put({short}[{count}].pack({count} + 1, *{value}))")
        long = self.constant("ints", repeated("", item.format))
        self.emit(indent, f"else: put(uvarints[{count} + 1]); put({long}[{count}].pack(*{value}))")
