"""How a command ends when it does not end well."""


class UsageError(Exception):
    """The command was asked wrongly: exit code 2."""


class Failure(Exception):
    """The command could not do what it was asked: exit code 1."""


class OutputClosed(Exception):
    """Whoever read our output, `head` for example, has seen enough: nothing went wrong."""
