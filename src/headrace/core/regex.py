"""Regular expressions whose matching takes time in proportion to the text, whatever the pattern: clients send them.

What RE2 and its kin have in common: literals, `.`, classes, `\\d \\w \\s` and their opposites, groups, `|`, and
`* + ? {m,n}` with their lazy forms, `^` and `$`. No references back and no looking around: those need other time. A
pattern matches a whole text or not at all.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

PATTERN_CHARACTERS_MAX: Final = 1_000
STEPS_MAX: Final = 500
"""Of a compiled pattern, in which `x{100}` is a hundred steps."""
DEPTH_MAX: Final = 50
"""Of groups in groups."""
KNOWN_MAX: Final = 1_000
"""Moves that are remembered. When there are more, it is begun anew."""

Test = Callable[[str], bool]


class InvalidPattern(ValueError):
    """One sentence with what is wrong."""


class _Step(NamedTuple):
    """Takes a character that passes the test; or without one goes on at all these places, where `at` allows it."""

    test: Test | None
    nexts: tuple[int, ...] = ()
    at: str = ""


Part = Callable[[int], int]
"""Puts itself before the step with that number: where it begins then."""

_CLASSES: Final[dict[str, Test]] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
    "s": lambda c: c in "\t\n\f\r ",
}
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$")


class Pattern:
    """Made from text that anybody wrote. Raises InvalidPattern."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise InvalidPattern(f"A pattern has at most {PATTERN_CHARACTERS_MAX} characters")
        self._steps: list[_Step] = [_Step(None)]  # the first one is the end
        self._start = _Parser(pattern, self._steps).whole()(0)
        self._moves: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Whether the whole text is meant."""
        places = self._reached({self._start}, at_begin=True, at_end=not text)
        last = len(text) - 1
        for at, character in enumerate(text):
            if not places:
                return False
            key = places, character
            moved = self._moves.get(key) if at < last else None
            if moved is None:
                moved = self._move(places, character, at_end=at == last)
                if at < last:
                    if len(self._moves) >= KNOWN_MAX:
                        self._moves.clear()
                    self._moves[key] = moved
            places = moved
        return 0 in places

    def _move(self, places: frozenset[int], character: str, at_end: bool) -> frozenset[int]:
        steps = self._steps
        taken = {
            steps[place].nexts[0] for place in places if (test := steps[place].test) is not None and test(character)
        }
        return self._reached(taken, at_begin=False, at_end=at_end)

    def _reached(self, places: set[int], at_begin: bool, at_end: bool) -> frozenset[int]:
        """All places that are reached from these without another character."""
        found: set[int] = set()
        due = list(places)
        while due:
            place = due.pop()
            if place in found:
                continue
            found.add(place)
            step = self._steps[place]
            allowed = step.at == "" or (step.at == "^" and at_begin) or (step.at == "$" and at_end)
            if step.test is None and allowed:
                due += step.nexts
        return frozenset(place for place in found if place == 0 or self._steps[place].test is not None)


class _Parser:
    def __init__(self, text: str, steps: list[_Step]) -> None:
        self._text = text
        self._pos = self._depth = 0
        self._steps = steps

    def whole(self) -> Part:
        part = self._choice()
        if self._pos < len(self._text):
            raise InvalidPattern("A parenthesis is closed that was not opened")
        return part

    def _put(self, step: _Step) -> int:
        if len(self._steps) >= STEPS_MAX:
            raise InvalidPattern(f"The pattern has more than {STEPS_MAX} steps")
        self._steps.append(step)
        return len(self._steps) - 1

    def _peek(self) -> str:
        return self._text[self._pos] if self._pos < len(self._text) else ""

    def _next(self, what: str) -> str:
        if self._pos >= len(self._text):
            raise InvalidPattern(f"The pattern ends inside {what}")
        self._pos += 1
        return self._text[self._pos - 1]

    def _choice(self) -> Part:
        options = [self._sequence()]
        while self._peek() == "|":
            self._pos += 1
            options.append(self._sequence())
        if len(options) == 1:
            return options[0]
        return lambda then: self._put(_Step(None, tuple(option(then) for option in options)))

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))

        def put(then: int) -> int:
            for part in reversed(parts):
                then = part(then)
            return then

        return put

    def _atom(self) -> Part:
        character = self._next("the pattern")
        if character == "(":
            return self._group()
        if character in "^$":
            return lambda then: self._put(_Step(None, (then,), character))
        if character in "*+?":
            raise InvalidPattern(f"There is nothing before {character!r} to repeat")
        test = self._test(character)
        return lambda then: self._put(_Step(test, (then,)))

    def _group(self) -> Part:
        if self._peek() == "?":
            self._pos += 1
            if self._next("a group") != ":":
                raise InvalidPattern("Of groups that begin with '(?' only '(?:' is known")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidPattern(f"Groups are nested more than {DEPTH_MAX} deep")
        part = self._choice()
        if self._next("a group") != ")":
            raise InvalidPattern("A parenthesis is not closed")
        self._depth -= 1
        return part

    def _test(self, character: str) -> Test:
        if character == ".":
            return lambda c: c != "\n"
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escaped()
        return lambda c: c == character

    def _escaped(self) -> Test:
        character = self._next("an escape")
        known = _CLASSES.get(character.lower())
        if known is not None:
            return known if character.islower() else lambda c: not known(c)
        literal = self._literal(character)
        return lambda c: c == literal

    @staticmethod
    def _literal(character: str) -> str:
        if character in _CONTROL:
            return _CONTROL[character]
        if character.isascii() and character.isalnum():
            raise InvalidPattern(f"The escape '\\{character}' is not known")
        return character

    def _class(self) -> Test:
        negated = self._peek() == "^"
        self._pos += negated
        tests: list[Test] = []
        while self._peek() != "]" or not tests:
            tests.append(self._member())
        self._pos += 1
        return lambda c: any(test(c) for test in tests) is not negated

    def _member(self) -> Test:
        character = self._next("a class")
        if character == "\\":
            following = self._peek()
            if following.lower() in _CLASSES:
                return self._escaped()
            character = self._literal(self._next("a class"))
        if self._peek() != "-" or self._text[self._pos + 1 : self._pos + 2] in ("", "]"):
            return lambda c: c == character
        self._pos += 1
        last = self._next("a class")
        if last == "\\":
            last = self._literal(self._next("a class"))
        if last < character:
            raise InvalidPattern(f"The range '{character}-{last}' goes backwards")
        return lambda c: character <= c <= last

    def _repeated(self, part: Part) -> Part:
        bounds = self._bounds()
        if bounds is None:
            return part
        if self._peek() == "?":
            self._pos += 1  # lazy: the same texts match
        if self._bounds() is not None:
            raise InvalidPattern("What is repeated cannot be repeated at once again")
        return self._times(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        character = self._peek()
        if character in ("*", "+", "?") and character:
            self._pos += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        if character != "{":
            return None
        end = self._text.find("}", self._pos)
        low, comma, high = self._text[self._pos + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not _is_number(low) or (high and not _is_number(high)):
            raise InvalidPattern("After '{' come one or two numbers and '}'")
        self._pos = end + 1
        least, most = int(low), int(high) if high else None if comma else int(low)
        if most is not None and most < least:
            raise InvalidPattern(f"Something cannot be there at least {least} and at most {most} times")
        return least, most

    def _times(self, part: Part, least: int, most: int | None) -> Part:
        def put(then: int) -> int:
            if most is None:
                again = self._put(_Step(None))
                self._steps[again] = _Step(None, (part(again), then))
                then = again
            else:
                end = then
                for _ in range(most - least):
                    then = self._put(_Step(None, (part(then), end)))
            for _ in range(least):
                then = part(then)
            return then

        return put


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
