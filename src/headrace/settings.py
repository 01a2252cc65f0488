"""What a setting is: its name, type, default, allowed values and text; parsing with one clear sentence.

The settings themselves are declared in config.py.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308


class Kind(IntEnum):
    """The numbers are those that DescribeConfigs sends."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class InvalidSetting(ValueError):
    """One sentence that names the setting, the value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: Kind
    default: Value
    doc: str
    low: float = 0
    high: float = LONG_MAX
    choices: tuple[str, ...] = ()
    not_yet: Mapping[str, str] = field(default_factory=dict)
    """Values that Kafka knows and this program refuses, each with the reason."""
    inherits: tuple[tuple[str, int], ...] = ()
    """Broker settings that give a topic its default, strongest first, each with the factor to this one's unit."""
    dynamic: bool = False
    """A broker setting that can change while the node runs. Topic settings always can."""
    unused: bool = False
    """Accepted because stock tools send it; nothing reads it."""

    @property
    def documentation(self) -> str:
        return f"{self.doc} Accepted for compatibility: nothing reads it." if self.unused else self.doc


def parse(setting: Setting, text: str) -> Value:
    """Kafka's reading of a setting's text, or InvalidSetting."""
    text = text.strip()
    match setting.kind:
        case Kind.BOOLEAN:
            return _parse_boolean(setting, text)
        case Kind.INT | Kind.LONG | Kind.DOUBLE:
            return _parse_number(setting, text)
        case Kind.STRING:
            return _parse_choice(setting, text)
        case Kind.LIST:
            words = dict.fromkeys(word for word in (part.strip() for part in text.split(",")) if word)
            if setting.choices and not words:
                raise InvalidSetting(f"{setting.name} is empty: it needs at least one of {', '.join(setting.choices)}")
            return tuple(str(_parse_choice(setting, word)) for word in words)


def render(value: Value) -> str | None:
    """The text that parses to this value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return None if value is None else str(value)


def parse_all(known: Mapping[str, Setting], given: Mapping[str, str], what: str) -> dict[str, Value]:
    """Attribute names and values for a config class; the first bad one raises."""
    return {attribute(name): parse(find(known, name, what), text) for name, text in given.items()}


def find(known: Mapping[str, Setting], name: str, what: str) -> Setting:
    setting = known.get(name)
    if setting is not None:
        return setting
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise InvalidSetting(f"Unknown {what} setting {name!r}{hint}")


def attribute(name: str) -> str:
    return name.replace(".", "_")


def _parse_boolean(setting: Setting, text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise InvalidSetting(f"Invalid value {text!r} for {setting.name}: it is true or false")
    _refuse_not_yet(setting, lowered)
    return lowered == "true"


def _parse_number(setting: Setting, text: str) -> int | float:
    value: int | float
    try:
        if not text.isascii() or "_" in text:  # Python reads more ways of writing a number than Kafka
            raise ValueError
        value = float(text) if setting.kind is Kind.DOUBLE else int(text)
    except ValueError:
        what = "a number" if setting.kind is Kind.DOUBLE else "a whole number"
        raise InvalidSetting(f"Invalid value {text!r} for {setting.name}: it is {what}") from None
    if not setting.low <= value <= setting.high:  # also refuses nan
        raise InvalidSetting(
            f"Invalid value {text!r} for {setting.name}: it is from {setting.low:g} to {setting.high:g}"
            if setting.kind is Kind.DOUBLE
            else f"Invalid value {text!r} for {setting.name}: it is from {setting.low} to {setting.high}"
        )
    return value


def _parse_choice(setting: Setting, text: str) -> str:
    if setting.choices and text not in setting.choices:
        raise InvalidSetting(f"Invalid value {text!r} for {setting.name}: it is one of {', '.join(setting.choices)}")
    _refuse_not_yet(setting, text)
    return text


def _refuse_not_yet(setting: Setting, text: str) -> None:
    reason = setting.not_yet.get(text)
    if reason is not None:
        raise InvalidSetting(f"Invalid value {text!r} for {setting.name}: {reason}")


# Declarations. Each returns a dataclass field; the Kafka name is the attribute's with dots for underscores.
# `Any` because a dataclass field stands where a value of the attribute's type is expected.


def whole(default: int | None, doc: str, *, low: int = 0, high: int = LONG_MAX, **more: Any) -> Any:
    return _declare(Kind.INT if high <= INT_MAX else Kind.LONG, default, doc, low=low, high=high, **more)


def real(default: float, doc: str, *, low: float, high: float, **more: Any) -> Any:
    return _declare(Kind.DOUBLE, default, doc, low=low, high=high, **more)


def flag(default: bool, doc: str, **more: Any) -> Any:
    return _declare(Kind.BOOLEAN, default, doc, **more)


def word(default: str | None, doc: str, **more: Any) -> Any:
    return _declare(Kind.STRING, default, doc, **more)


def words(default: tuple[str, ...], doc: str, **more: Any) -> Any:
    return _declare(Kind.LIST, default, doc, **more)


def _declare(kind: Kind, default: Value, doc: str, **more: Any) -> Any:
    return field(default=default, metadata={"setting": Setting("", kind, default, doc, **more)})


def declared(config_class: type[Any]) -> Mapping[str, Setting]:
    """Every setting of a config class by its Kafka name, in order of declaration."""
    found = ((f.name.replace("_", "."), f.metadata["setting"]) for f in fields(config_class))
    return MappingProxyType({name: replace(setting, name=name) for name, setting in found})
