"""The command `headrace`: every command returns 0 (done), 1 (it could not be done) or 2 (asked wrongly).

Whatever goes wrong is one sentence on stderr, never a traceback. Modules are imported when their command runs, so
that `serve` and `up` are ready at once.
"""

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    from headrace.cli.app import run

    try:
        return run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED
