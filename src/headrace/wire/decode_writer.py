"""Writes the decoder of one message version as straight Python.

Consecutive constant-width fields are one `unpack_from`, the closing tag count riding along; nested structs are
inlined; an array of constant-width structs without tags goes through `iter_unpack`. Every length is held
against the bytes left before anything is made of it. Slices may run over the end of the buffer unnoticed:
they allocate nothing then, every read behind them fails, and the last line of the decoder compares the end.
"""

import struct
from typing import Any, Final

from headrace.wire.primitives import repeated, skip_tags, uvarint_tail
from headrace.wire.source import Source, classic_length, fixed_run
from headrace.wire.struct import Message, ProtocolError, Struct
from headrace.wire.types import Array, Field, Fixed, Payload, Text

ITEMS_MAX: Final = 1 << 21
"""Items in all arrays of one message together. An item can take one byte on the wire and a hundred in memory:
without this bound a full-sized request could make tens of millions of objects."""

FEW_ITEMS: Final = 3


class DecodeWriter(Source):
    """`over_view` says that the buffer will be a memoryview, which can neither decode text nor count."""

    def __init__(self, version: int, *, flexible: bool, over_view: bool) -> None:
        super().__init__(version, flexible=flexible)
        self.over_view = over_view
        self.scope |= {
            "new": object.__new__,
            "memoryview": memoryview,
            "more": uvarint_tail,
            "skip": skip_tags,
            "ProtocolError": ProtocolError,
        }

    def message(self, cls: type[Message]) -> str:
        self._struct(1, "message", cls)
        body = self.lines
        self.lines = []
        self.emit(0, "def decode(buf, pos):")
        self.emit(1, "end = len(buf)")
        if any("view[" in line for line in body):
            self.emit(1, "view = memoryview(buf)")
        if any("room" in line for line in body):
            self.emit(1, f"room = {ITEMS_MAX}")
        self.lines += body
        surplus = cls.surplus_bytes_max
        self.emit(1, f"if not 0 <= end - pos <= {surplus}:" if surplus else "if pos != end:")
        self.emit(
            2, "raise ProtocolError(f'{pos - end} bytes missing' if pos > end else f'{end - pos} bytes left over')"
        )
        self.emit(1, "return message")
        return "\n".join(self.lines)

    def _struct(self, indent: int, var: str, cls: type[Struct]) -> None:
        body, tags, absent = self.layout(cls)
        self.emit(indent, f"{var} = new({self.constant('C', cls)})")
        for spec in absent + tags:
            self.emit(indent, f"{var}.{spec.name} = {self.default(spec)}")
        at, tag_count = 0, ""
        while at < len(body):
            run = fixed_run(body, at)
            at += len(run)
            if at == len(body):
                tag_count = self.name("tags") if self.flexible else ""
                self._fixed_run(indent, var, run, "B", tag_count)
                break
            after = body[at]
            at += 1
            count = "" if isinstance(after.type, type) else self.name("n")
            if run:
                self._fixed_run(indent, var, run, self._count_format(after.type), count)
            elif count:
                self._count(indent, count, after.type)
            target = f"{var}.{after.name}"
            self._value(indent, target, after.type, after.nullable(self.version), after.name, count)
        if self.flexible:
            self._tags(indent, var, tag_count, tags)

    def _count_format(self, wire_type: Any) -> str:
        """The first byte of a compact length, or all of a classic one: read together with the fields before it."""
        return "B" if self.flexible else classic_length(wire_type).format[1:]

    def _fixed_run(self, indent: int, var: str, run: list[Field], count_format: str, count: str) -> None:
        codec = struct.Struct(">" + "".join(spec.type.format for spec in run) + (count_format if count else ""))
        targets = [f"{var}.{spec.name}" for spec in run] + ([count] if count else [])
        unpack = self.constant("unpack", codec.unpack_from)
        self.emit(indent, f"{', '.join(targets)}{',' * (len(targets) == 1)} = {unpack}(buf, pos); pos += {codec.size}")

    def _count(self, indent: int, count: str, wire_type: Any) -> None:
        if self.flexible:
            self.emit(indent, f"{count} = buf[pos]; pos += 1")
        else:
            codec = classic_length(wire_type)
            self.emit(indent, f"{count}, = {self.constant('unpack', codec.unpack_from)}(buf, pos); pos += {codec.size}")

    def _tags(self, indent: int, var: str, count: str, tags: list[Field]) -> None:
        """Tags may come in any order and the last of two equal ones counts, as in Kafka's own reader."""
        if not count:
            count = self.name("tags")
            self.emit(indent, f"{count} = buf[pos]; pos += 1")
        if not tags:
            self.emit(indent, f"if {count}: pos = skip(buf, pos, {count})")
            return
        tag, size, tag_end = self.name("tag"), self.name("size"), self.name("end")
        self.emit(indent, f"if {count}:")
        indent += 1
        self.emit(indent, f"if {count} > 127: {count}, pos = more(buf, pos, {count})")
        self.emit(indent, f"for _ in range({count}):")
        self._uvarint(indent + 1, tag)
        self._uvarint(indent + 1, size)
        self.emit(indent + 1, f"{tag_end} = pos + {size}")
        for position, spec in enumerate(tags):
            self.emit(indent + 1, f"{'elif' if position else 'if'} {tag} == {spec.tag}:")
            self._value(indent + 2, f"{var}.{spec.name}", spec.type, spec.nullable(self.version), spec.name)
            self.emit(indent + 2, f"if pos != {tag_end}: raise ProtocolError('{spec.name} does not fill its tag')")
        self.emit(indent + 1, f"pos = {tag_end}")

    def _uvarint(self, indent: int, var: str) -> None:
        self.emit(indent, f"{var} = buf[pos]; pos += 1")
        self.emit(indent, f"if {var} > 127: {var}, pos = more(buf, pos, {var})")

    def _value(self, indent: int, target: str, wire_type: Any, nullable: bool, name: str, count: str = "") -> None:
        """`count` names the length, if it has been read already."""
        if isinstance(wire_type, Fixed):
            unpack = self.constant("unpack", struct.Struct(">" + wire_type.format).unpack_from)
            self.emit(indent, f"{target}, = {unpack}(buf, pos); pos += {wire_type.size}")
        elif isinstance(wire_type, type):
            self._nested(indent, target, wire_type, nullable, name)
        else:
            if not count:
                count = self.name("n")
                self._count(indent, count, wire_type)
            self._counted(indent, target, wire_type, nullable, name, count)

    def _nested(self, indent: int, target: str, cls: type[Struct], nullable: bool, name: str) -> None:
        inner = self.name("s")
        if not nullable:
            self._struct(indent, inner, cls)
            self.emit(indent, f"{target} = {inner}")
            return
        self.emit(indent, "mark = buf[pos]; pos += 1")
        self.emit(indent, "if mark == 1:")
        self._struct(indent + 1, inner, cls)
        self.emit(indent + 1, f"{target} = {inner}")
        self.emit(indent, f"elif mark == 255: {target} = None")
        self.emit(indent, f"else: raise ProtocolError('{name} is neither null nor there')")

    def _counted(self, indent: int, target: str, wire_type: Any, nullable: bool, name: str, count: str) -> None:
        """A compact length is one more than the length, and zero stands for null."""
        if self.flexible:
            self.emit(indent, f"if {count} > 127: {count}, pos = more(buf, pos, {count})")
            self.emit(indent, f"if {count}:")
        else:
            self.emit(indent, f"if {count} >= 0:")
        if isinstance(wire_type, Array):
            if self.flexible:
                self.emit(indent + 1, f"{count} -= 1")
            self._array(indent + 1, target, wire_type.item, count, name)
        else:
            self.emit(indent + 1, f"{target} = {self._slice(wire_type, count)}")
        if nullable:
            self.emit(indent, f"{'else' if self.flexible else f'elif {count} == -1'}: {target} = None")
        if not nullable:
            self.emit(indent, f"else: raise ProtocolError('{name} must not be null')")
        elif not self.flexible:
            self.emit(indent, f"else: raise ProtocolError('{name} has a negative length')")

    def _slice(self, wire_type: Any, count: str) -> str:
        taken = f"[pos:(pos := pos + {count}{' - 1' * self.flexible})]"
        if isinstance(wire_type, Payload):
            return f"view{taken}"
        if isinstance(wire_type, Text):
            return f"str(buf{taken}, 'utf-8')" if self.over_view else f"buf{taken}.decode()"
        return f"bytes(buf{taken})"

    def _array(self, indent: int, target: str, item: Any, count: str, name: str) -> None:
        size_min = self.size_min(item)
        if size_min == 0:
            raise TypeError(f"{name}: an array of nothing cannot be bounded")
        self.emit(indent, f"if {count} * {size_min} > end - pos or (room := room - {count}) < 0:")
        self.emit(indent + 1, f"raise ProtocolError('{name} claims more items than the message can hold')")
        if isinstance(item, Fixed):
            self._fixed_items(indent, target, item, count)
            return
        items, index = self.name("items"), self.name("i")
        self.emit(indent, f"{target} = {items} = []")
        if isinstance(item, type) and all(isinstance(spec.type, Fixed) for spec in self.layout(item).body):
            self._uniform_structs(indent, items, item, count)
            indent += 1
        one = self.name("one")
        self.emit(indent, f"for {index} in range({count}):")
        if isinstance(item, type):
            self._struct(indent + 1, one, item)
        else:
            self._value(indent + 1, one, item, False, name)
        self.emit(indent + 1, f"{items}.append({one})")

    def _fixed_items(self, indent: int, target: str, item: Fixed, count: str) -> None:
        after = f"pos + {count} * {item.size}"
        if item.format == "16s":
            self.emit(indent, f"{target} = [bytes(buf[at:at + 16]) for at in range(pos, {after}, 16)]; pos = {after}")
        else:
            counts = self.constant("ints", repeated("", item.format))
            self.emit(indent, f"{target} = list({counts}[{count}].unpack_from(buf, pos)); pos = {after}")

    def _uniform_structs(self, indent: int, items: str, cls: type[Struct], count: str) -> None:
        """Every item has the same width unless it carries tags: then the caller's loop, in the else, reads them.
        So it does for a few items, where setting this up would cost more than it saves."""
        body, tags, absent = self.layout(cls)
        codec = struct.Struct(">" + "".join(spec.type.format for spec in body) + "B" * self.flexible)
        after, row, item = self.name("end"), self.name("row"), self.name("s")
        condition = f"{count} > {FEW_ITEMS}"
        if self.flexible:
            tag_counts = f"buf[pos + {codec.size - 1}:pos + {count} * {codec.size}:{codec.size}]"
            condition += f" and {f'bytes({tag_counts})' if self.over_view else tag_counts}.count(0) == {count}"
        self.emit(indent, f"if {condition}:")
        self.emit(indent + 1, f"{after} = pos + {count} * {codec.size}")
        self.emit(indent + 1, f"for {row} in {self.constant('rows', codec.iter_unpack)}(buf[pos:{after}]):")
        self.emit(indent + 2, f"{item} = new({self.constant('C', cls)})")
        targets = [f"{item}.{spec.name}" for spec in body] + ["_"] * self.flexible
        self.emit(indent + 2, f"{', '.join(targets)}{',' * (len(targets) == 1)} = {row}")
        for spec in absent + tags:
            self.emit(indent + 2, f"{item}.{spec.name} = {self.default(spec)}")
        self.emit(indent + 2, f"{items}.append({item})")
        self.emit(indent + 1, f"pos = {after}")
        self.emit(indent, "else:")
