"""The command `headrace`: every command returns 0 (done), 1 (it could not be done) or 2 (asked wrongly).

Whatever goes wrong is one sentence on stderr, never a traceback. Modules are imported when their command runs.
"""

import os
import sys
from collections.abc import Sequence

THREADED_LIBRARIES = ("obstore", "deltalake")
"""They have threads of their own. One that calls back while the interpreter ends aborts the process, after all was
done."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Without arguments, for those of this process, which ends then."""
    try:
        code = _main(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        code = 1  # so early, or so late, that there is nothing to say
    if arguments is None and any(name in sys.modules for name in THREADED_LIBRARIES):
        _end_at_once(code)
    return code


def _end_at_once(code: int) -> None:
    """Everything is closed, and what was said is out."""
    import logging

    logging.shutdown()
    os._exit(code)


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
