"""What options hold, from text: each refused with one sentence that names the option and what it takes."""

import json
import re
import warnings
from collections.abc import Mapping
from typing import Any

from headrace.model import TopicPartition

EARLIEST, LATEST = -2, -1
"""In JSON of offsets, as Spark's own connector has them."""

INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1

_UNITS_MS = {
    "": 1, "ms": 1, "s": 1_000, "second": 1_000, "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip
_UNITS_BYTES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_WHOLE = re.compile(r"-?\d{1,19}")
_AMOUNT = re.compile(r"(\d{1,19})\s*([a-z]*)")
_PARTITION = re.compile(r"\d{1,10}")
"""More digits are too large anyhow, and of very many Python makes no number."""


class OptionRefused(ValueError):
    """One sentence for whoever wrote the query."""


def whole(name: str, text: str, smallest: int = 1, largest: int = LONG_MAX) -> int:
    if not _WHOLE.fullmatch(text.strip()) or not smallest <= int(text) <= largest:
        to = "on" if largest == LONG_MAX else f"to {largest}"
        raise OptionRefused(f"option {name} is a whole number from {smallest} {to}, not {text!r}")
    return int(text)


def flag(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise OptionRefused(f"option {name} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text.strip().lower() not in choices:
        raise OptionRefused(f"option {name} is {' or '.join(choices)}, not {text!r}")
    return text.strip().lower()


def duration_ms(name: str, text: str) -> int:
    return _amount(name, text, _UNITS_MS, 0, "a time such as 500ms, 30s or 15m")


def size_bytes(name: str, text: str) -> int:
    return _amount(name, text, _UNITS_BYTES, 1, "a number of bytes such as 1048576, 64k or 10mb")


def _amount(name: str, text: str, units: Mapping[str, int], smallest: int, what: str) -> int:
    found = _AMOUNT.fullmatch(text.strip().lower())
    unit = "" if found is None else found[2]
    unit = unit if unit in units else unit.removesuffix("s")
    if found is None or unit not in units or int(found[1]) < smallest:
        raise OptionRefused(f"option {name} is {what}, not {text!r}")
    return int(found[1]) * units[unit]


def names(name: str, text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not found:
        raise OptionRefused(f"option {name} names no topic")
    return found


def pattern(name: str, text: str) -> str:
    text = text.strip()
    if not text:
        raise OptionRefused(f"option {name} names no topic")
    try:
        with warnings.catch_warnings():
            # Java's sets within sets have another meaning here, and would choose other topics without a word.
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)
    except (re.error, FutureWarning) as error:
        raise OptionRefused(f"option {name} is no regular expression of Python's: {error}") from None
    return text


def assignment(name: str, text: str) -> tuple[TopicPartition, ...]:
    """`{"topic": [0, 1]}`."""
    found = []
    for topic, partitions in _object(name, text, '{"topic": [0, 1]}').items():
        if not isinstance(partitions, list) or not all(_is_whole(index) and index >= 0 for index in partitions):
            raise OptionRefused(f'option {name} is JSON like {{"topic": [0, 1]}}, not {text!r}')
        found += [TopicPartition(topic, index) for index in partitions]
    if not found:
        raise OptionRefused(f"option {name} names no partition")
    return tuple(sorted(set(found)))


def by_partition(name: str, text: str, smallest: int) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 23}}`."""
    form = '{"topic": {"0": 23, "1": -2}}' if smallest < 0 else '{"topic": {"0": 23}}'
    found = {}
    for topic, partitions in _object(name, text, form).items():
        if not isinstance(partitions, dict):
            raise OptionRefused(f"option {name} is JSON like {form}, not {text!r}")
        for index, number in partitions.items():
            if not _PARTITION.fullmatch(index) or not _is_whole(number) or not smallest <= number <= LONG_MAX:
                raise OptionRefused(f"option {name} is JSON like {form}; {index!r}: {number!r} is none of it")
            found[TopicPartition(topic, int(index))] = number
    return found


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _object(name: str, text: str, form: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionRefused(f"option {name} is JSON like {form}, not {text!r}")
    return found
