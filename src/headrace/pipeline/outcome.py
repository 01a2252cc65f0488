"""How a pipeline ends when it does not end well. Each text is one sentence."""

import re

_RAISED = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*: (.+)$", re.MULTILINE)
_NOISE = re.compile(r"^(?:Traceback|During|The above)")


class AskedWrongly(ValueError):
    """The options cannot be meant."""


class PipelineFailed(Exception):
    """It could not be done."""


def sentence_of(error: BaseException) -> str:
    """What went wrong in one of Spark's processes: Spark tells it with the traces of all that were involved."""
    text = str(error)
    said = [one.strip() for one in _RAISED.findall(text) if not _NOISE.match(one)]
    plain = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return (said[-1] if said else plain).rstrip(".")
