"""`serve`, `up` and `node withdraw` without the libraries of the command line, which cost as much as half a node.

Only what is written in full and is plainly right is read here: `--option value`, or a flag. Everything else, a request
for help or a mistake, is left to cyclopts, which knows how to say so.
"""

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from headrace.cli.values import is_number

COMMANDS = {
    ("serve",): ("headrace.cli.serve", "serve"),
    ("up",): ("headrace.cli.up", "up"),
    ("node", "withdraw"): ("headrace.cli.withdraw", "withdraw"),
}
OPTIONS = {"settings": "--set"}
"""Where the option is called otherwise than the argument."""


def find(arguments: Sequence[str]) -> Callable[[], int] | None:
    """The command, ready to run; None when it is not for here."""
    words = next((words for words in COMMANDS if tuple(arguments[: len(words)]) == words), None)
    if words is None:
        return None
    module, name = COMMANDS[words]
    function: Callable[..., int] = getattr(importlib.import_module(module), name)
    values = read(inspect.signature(function), arguments[len(words) :])
    return None if values is None else lambda: function(**values)


def read(signature: inspect.Signature, tokens: Sequence[str]) -> dict[str, Any] | None:
    named = {OPTIONS.get(name, "--" + name.replace("_", "-")): p for name, p in signature.parameters.items()}
    values: dict[str, Any] = {}
    rest = iter(tokens)
    for token in rest:
        parameter = named.get(token)
        if parameter is None:
            return None
        repeats = parameter.annotation == tuple[str, ...]
        if parameter.name in values and not repeats:
            return None
        if parameter.annotation is bool:
            values[parameter.name] = True
            continue
        text = next(rest, "-")
        if text.startswith("-") or (parameter.annotation is int and not is_number(text)):
            return None
        if repeats:
            values[parameter.name] = (*values.get(parameter.name, ()), text)
        else:
            values[parameter.name] = int(text) if parameter.annotation is int else text
    required = (name for name, p in signature.parameters.items() if p.default is inspect.Parameter.empty)
    return values if all(name in values for name in required) else None
