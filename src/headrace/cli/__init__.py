"""The command `headrace`: every command returns 0 (done), 1 (it could not be done) or 2 (asked wrongly).

Whatever goes wrong is one sentence on stderr, never a traceback. Modules are imported when their command runs.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    from headrace.cli import ending, output, quick

    output.open_closed_streams()
    given = sys.argv[1:] if arguments is None else list(arguments)

    def command() -> object:
        found = quick.find(given)
        if found is not None:
            return found()
        from headrace.cli.app import run

        return run(given)

    return ending.run(command)
