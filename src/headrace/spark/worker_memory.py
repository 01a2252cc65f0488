"""What a worker process of Spark's does with its memory."""

import gc
import sys

WORKERS_PROGRAM = "pyspark.daemon"


def keep_what_is_loaded() -> None:
    """Spark collects garbage after each task, and then looks at every object of the compiler, which takes longer than
    a small task itself; what is there before the first one stays for the life of the process anyway."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name == WORKERS_PROGRAM and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
