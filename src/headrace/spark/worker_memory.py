"""What a worker process of Spark's does with its memory."""

import gc
import sys
from itertools import count

WORKERS_PROGRAM = "pyspark.daemon"

_tasks = count()
"""Of this process."""


def keep_what_is_loaded() -> None:
    """Spark collects garbage after each task, and then looks at every object of the compiler, which takes longer than
    a small task itself; what is there before the first task, and what the first one has loaded, stays for the life of
    the process anyway."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name == WORKERS_PROGRAM and next(_tasks) < 2:
        gc.collect()
        gc.freeze()
