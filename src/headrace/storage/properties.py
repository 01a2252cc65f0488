"""`meta.properties` of a data directory, in the format of Java's property files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.storage.checkpoints import CorruptCheckpoint, parse_uuid, uuid_text

VERSION = 1


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Whose directory this is. `own` holds keys that Kafka does not know; it passes over them."""

    cluster_id: str
    node_id: int
    directory_id: bytes
    own: Mapping[str, str] = field(default_factory=dict)


def format_meta_properties(meta: MetaProperties) -> str:
    return format_properties(
        {
            "version": str(VERSION),
            "cluster.id": meta.cluster_id,
            "node.id": str(meta.node_id),
            "directory.id": uuid_text(meta.directory_id),
            **meta.own,
        }
    )


def parse_meta_properties(text: str) -> MetaProperties:
    found = parse_properties(text)
    version = found.pop("version", None)
    if version != str(VERSION):
        raise CorruptCheckpoint(f"meta.properties has version {version}, only {VERSION} is known.")
    for name in ("cluster.id", "node.id", "directory.id"):
        if name not in found:
            raise CorruptCheckpoint(f"meta.properties names no {name}.")
    node_id = found.pop("node.id")
    if not re.fullmatch("[0-9]{1,10}", node_id):
        raise CorruptCheckpoint(f"meta.properties has node.id {node_id!r}, which is no number.")
    return MetaProperties(found.pop("cluster.id"), int(node_id), parse_uuid(found.pop("directory.id")), found)


_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {content: "\\" + letter for letter, content in _ESCAPED.items()} | {c: "\\" + c for c in "\\=:#!"}
_BLANKS = " \t\f"
# A key ends before the first blank, = or : that no backslash makes part of it.
_KEY = re.compile(r"(?:\\.|[^\\ \t\f=:])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def format_properties(properties: Mapping[str, str]) -> str:
    """In the given order, in ASCII, because Java reads such files as Latin-1."""
    return "".join(f"{_escape(key, True)}={_escape(content, False)}\n" for key, content in properties.items())


def parse_properties(text: str) -> dict[str, str]:
    """All of Java's format: comments, three separators, escapes, lines that go on after a backslash."""
    found = {}
    for line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None, "the pattern matches the empty string"
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None, "the pattern matches the empty string"
        found[_unescape(key.group())] = _unescape(line[separator.end() :])
    return found


def _logical_lines(text: str) -> list[str]:
    lines = []
    pending = ""
    for line in re.split("\r\n|\r|\n", text):
        line = line.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            # A lone backslash still begins an entry that the next line goes on with.
            pending = pending or _BLANKS[0]
            continue
        lines.append((pending + line).lstrip(_BLANKS))
        pending = ""
    if pending.strip(_BLANKS):
        lines.append(pending.lstrip(_BLANKS))
    return lines


def _escape(text: str, is_key: bool) -> str:
    out = []
    for at, character in enumerate(text):
        if character in _ESCAPES:
            out.append(_ESCAPES[character])
        elif character == " ":
            out.append("\\ " if is_key or at == 0 else " ")
        elif " " < character <= "~":
            out.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            out.extend(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))
    return "".join(out)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_unescaped, text)
    return _SURROGATES.sub(lambda pair: pair.group().encode("utf-16", "surrogatepass").decode("utf-16"), plain)


def _unescaped(escape: re.Match[str]) -> str:
    content = escape.group(1)
    if len(content) == 5:
        return chr(int(content[1:], 16))
    if content == "u":
        raise CorruptCheckpoint("A property file has \\u without four hexadecimal digits.")
    return _ESCAPED.get(content, content)
