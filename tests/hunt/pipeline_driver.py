"""A driver with two queries: python -m tests.hunt.pipeline_driver MASTER BOOTSTRAP SOURCE TARGET DIRECTORY.

`lake` makes a table of SOURCE, and a copy of SOURCE is written to TARGET, each row once; everything is below DIRECTORY.
Once there is a file `finish`, both come to the end of what is there, and it ends with 0. If one of them fails, it
prints why, and ends with 3.
"""

import os
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.pipeline.lake import LakeOptions, run
from tests.spark.jvm.driver import copying, session

LOOK_S = 0.2
EVERY_S = 1.0
CORES_MAX = 2
"""Of one driver, so that there is room for another one."""


class Lake:
    """In a thread, until it is told to finish."""

    def __init__(self, spark: SparkSession, bootstrap: str, source: str, directory: str) -> None:
        self._spark = spark
        self._options = LakeOptions(
            (source,), f"{directory}/table", bootstrap=bootstrap, schema="id long", every_s=EVERY_S
        )
        self._stop = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            run(self._options, stop=self._stop, spark=self._spark)
        except BaseException as failure:  # whatever it is, who looks hears of it
            self.failure = failure

    def look(self) -> None:
        if self.failure is not None:
            raise self.failure

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        self.look()
        run(replace(self._options, once=True), spark=self._spark)


def main(master: str, bootstrap: str, source: str, target: str, directory: str) -> None:
    spark = session(master, {"spark.cores.max": str(CORES_MAX)})
    lake = Lake(spark, bootstrap, source, directory)
    places = (f"{directory}/checkpoint", f"{directory}/stage")
    query = copying(spark, bootstrap, source, target, *places).trigger(processingTime=f"{EVERY_S} seconds").start()
    while not Path(directory, "finish").exists():
        time.sleep(LOOK_S)
        lake.look()
        failure = query.exception()
        if failure is not None:
            raise failure
    lake.finish()
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception:  # whatever it is, it is told, and no thread that is left keeps the process
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(3)
