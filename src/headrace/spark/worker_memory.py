"""What a worker process of Spark's does with its memory."""

import ctypes
import gc
import sys
from itertools import count

WORKERS_PROGRAM = "pyspark.daemon"

# Numbers of glibc's mallopt.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
KEPT_BYTES_MAX = 64 << 20
"""Of free memory, that a process does not give back to the system."""
KEPT_BLOCK_BYTES_MAX = 32 << 20

_tasks = count()
"""Of this process."""


def keep_what_is_loaded() -> None:
    """Spark collects garbage after each task, each plan and each commit, and then looks at every object of the compiler
    and of all libraries, which takes longer than a small task itself; what is there before the first one, and what that
    has loaded, stays for the life of the process anyway."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is None or program.name != WORKERS_PROGRAM:
        return
    task = next(_tasks)
    if task == 0:
        _keep_blocks()
    if task < 2:
        gc.collect()
        gc.freeze()


def _keep_blocks() -> None:
    """A task takes and gives back megabytes again and again. By itself, glibc fetches each such block from the system,
    whose pages cost more to get than the records in them to decode."""
    choose = getattr(ctypes.CDLL(None), "mallopt", None)  # other libraries have none
    if choose is not None:
        choose(MMAP_THRESHOLD, KEPT_BLOCK_BYTES_MAX)
        choose(TRIM_THRESHOLD, KEPT_BYTES_MAX)
