"""A batch job whose driver dies is given up soon, so that nobody waits for what its tasks have left open.

For that brokers must hear of a driver while it lives, and nothing of ours lives as long as one: Spark ends its Python
processes when they had nothing to do for a minute, while tasks may write for longer. So a small process is started
beside it, for each job, which lives until the job is over, or the driver.
"""

import logging
import os
import subprocess
import sys
import tempfile
from contextlib import suppress

log = logging.getLogger(__name__)

PLANNING = "pyspark.sql.worker.write_into_data_source"
"""What Spark runs on the driver, in a process that its daemon has forked. The daemon lives as long as the driver."""
KEEPER = "headrace.spark.job_keeper"


def keep_job(bootstrap: str, job: str) -> str | None:
    """A file that is there until the job is over. None where nothing can be kept: then transactions end when they time
    out."""
    if PLANNING not in sys.modules:
        return None
    sign = None
    try:
        handle, sign = tempfile.mkstemp(prefix="headrace-job-")
        os.close(handle)
        subprocess.Popen(
            [sys.executable, "-P", "-m", KEEPER, bootstrap, job, sign, str(os.getppid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except OSError as error:
        log.warning("should the driver die, transactions of this job are left to time out: %s", error)
        release_job(sign)
        return None
    return sign


def release_job(sign: str | None) -> None:
    """It is over, as far as its driver is concerned."""
    if sign is not None:
        with suppress(FileNotFoundError):  # the keeper has heard of it just now, and was first
            os.unlink(sign)
