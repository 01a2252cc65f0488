"""What people write on the command line, as values. The time is handed in."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headrace.cli.outcome import UsageError

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"-(\d{1,12})(ms|s|m|h|d)")
_SPAN = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d{1,12})(k|m|g)?b?", re.IGNORECASE)
_SIZE_BYTES = {None: 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SIZE_BYTES_MAX = 100 << 20
"""The largest request that a broker takes unless it is told otherwise."""
_DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class Beginning:
    pass


@dataclass(frozen=True, slots=True)
class End:
    pass


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    timestamp_ms: int


Start = Beginning | End | AtOffset | AtTime


def parse_start(text: str, now_ms: int, option: str = "--from") -> Start:
    """Where to begin to read: `beginning`, `end`, an offset, an ISO 8601 time, or a time ago such as `-5m`."""
    if text == "beginning":
        return Beginning()
    if text == "end":
        return End()
    if is_number(text):
        return AtOffset(int(text))
    if ago := _AGO.fullmatch(text):
        return AtTime(max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]]))
    try:
        # A time without a zone is the user's own. Below zero, the protocol has other meanings than times.
        return AtTime(max(0, int(datetime.fromisoformat(text).timestamp() * 1000)))
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{option} takes beginning, end, an offset, a time such as 2026-01-31T12:00 or -5m, not {text!r}"
        ) from None


def is_number(text: str) -> bool:
    """Plain digits, few enough for the widest number of the protocol."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """`--set key=value`, as often as wanted; the last one wins."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set takes key=value, not {pair!r}")
        settings[key.strip()] = value.strip()
    return settings


def parse_address(text: str, option: str) -> tuple[str, int]:
    """HOST:PORT; an IPv6 host stands in brackets."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not host or not is_number(port) or int(port) > 65_535:
        raise UsageError(f"{option} takes HOST:PORT, not {text!r}")
    return host, int(port)


def absolute_directories(text: str) -> str:
    """--data: one directory, or several with commas between them."""
    directories = [directory.strip() for directory in text.split(",")]
    if not all(directories):
        raise UsageError(f"--data takes a directory, or several with commas between them, not {text!r}")
    return ",".join(str(Path(directory).absolute()) for directory in directories)


def absolute_metadata(text: str) -> str:
    """--metadata, as a node and everybody else can use it from any directory."""
    kind, _, path = text.partition(":")
    if kind == "sqlite" and path:
        return f"sqlite:{Path(path).absolute()}"
    addresses = path.removeprefix("//").rstrip("/").split(",") if kind == "etcd" and path.startswith("//") else [""]
    if not all(address.strip() for address in addresses):
        raise UsageError(f"--metadata takes sqlite:FILE or etcd://HOST:PORT,HOST:PORT, not {text!r}")
    return f"etcd://{','.join(address.strip() for address in addresses)}"


def parse_span_ms(text: str, option: str) -> int:
    """A time with its unit: 500ms, 2s, 1m."""
    if match := _SPAN.fullmatch(text):
        return max(1, int(match[1]) * _UNIT_MS[match[2]])
    raise UsageError(f"{option} takes a time such as 500ms or 2s, not {text!r}")


def parse_size(text: str, option: str) -> int:
    """Of a record: bytes, or with a unit: 100, 64k, 1MB."""
    size = parse_any_size(text, option)
    if size > SIZE_BYTES_MAX:
        raise UsageError(f"{option} is at most {SIZE_BYTES_MAX} bytes, not {text}")
    return size


def parse_any_size(text: str, option: str) -> int:
    """Bytes, or with a unit: 100, 64k, 1MB."""
    if match := _SIZE.fullmatch(text):
        return int(match[1]) * _SIZE_BYTES[match[2] and match[2].lower()]
    raise UsageError(f"{option} takes a number of bytes such as 100, 64k or 1MB, not {text!r}")


def parse_separator(text: str) -> bytes:
    r"""The characters between key and value; a tab is written \t."""
    separator = text.replace("\\t", "\t").encode()
    if not separator:
        raise UsageError("--key-separator takes at least one character")
    return separator
