"""What storage says when files are not what they should be."""

from headrace.errors import CorruptLog

__all__ = ["CorruptLog", "InUse", "WrongFormat"]


class WrongFormat(Exception):
    """A file of our own has a version that this program does not know, or is no such file. One sentence."""


class InUse(Exception):
    """Another process, or another node of this one, works on the directory. One sentence."""
