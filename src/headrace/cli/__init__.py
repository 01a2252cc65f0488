"""The command `headrace`: every command returns 0 (done), 1 (it could not be done) or 2 (asked wrongly).

Whatever goes wrong is one sentence on stderr, never a traceback. Modules are imported when their command runs.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        return _main(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return 1  # so early, or so late, that there is nothing to say


def _main(arguments: Sequence[str]) -> int:
    from headrace.cli import ending, output, quick

    output.open_closed_streams()

    def command() -> object:
        found = quick.find(arguments)
        if found is not None:
            return found()
        from headrace.cli.app import run

        return run(arguments)

    return ending.run(command)
