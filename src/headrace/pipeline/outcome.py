"""How a pipeline ends when it does not end well. Each text is one sentence."""

import re

_RAISED = re.compile(
    r"^(?:Caused by: |: )?(?:(?:[A-Za-z_][\w$]*\.)+([A-Z][\w$]*)|([A-Z]\w*(?:Error|Exception|Interrupt|Exit))): (.+)$",
    re.MULTILINE,
)
"""As Python and Java tell it: the name of its class, with what it is in unless it is built in, and what it says."""
_NOISE = re.compile(r"^Traceback|:$")
"""The cause comes with the next lines."""
_QUERY = "\n=== Streaming Query ==="
"""What follows is about the query, not about what went wrong."""
_AROUND = re.compile(r"^\[STREAM_FAILED\].*? terminated with exception: |(?: SQLSTATE: \w+)+\s*$")


class AskedWrongly(ValueError):
    """The options cannot be meant."""


class PipelineFailed(Exception):
    """It could not be done."""


class Overtaken(PipelineFailed):
    """By another driver on the same checkpoint, which had gone on before it knew of this one."""


def sentence_of(error: BaseException) -> str:
    """What went wrong in one of Spark's processes: Spark tells it with the traces of all that were involved."""
    text = str(error).partition(_QUERY)[0]
    said = [_said(*found.groups()) for found in _RAISED.finditer(text) if not _NOISE.search(found[3].strip())]
    plain = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return _AROUND.sub("", said[-1] if said else plain).rstrip(".")


def _said(dotted: str | None, built_in: str | None, text: str) -> str:
    """A word alone, such as the name of a host, says nothing without the class."""
    text = text.strip()
    return text if " " in text else f"{dotted or built_in}: {text}"
