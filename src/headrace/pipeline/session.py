"""The Spark session of a pipeline: on the master that is given, or that spark-submit chose, or on this machine."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.pipeline.outcome import AskedWrongly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which knows the master by itself."""

OURS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
}
NEEDED = ("pyspark", "pyarrow", "numba")


def check_installed(*further: str) -> None:
    """AskedWrongly, before a JVM is started for nothing."""
    from importlib.util import find_spec

    missing = [name for name in (*NEEDED, *further) if find_spec(name) is None]
    if missing:
        raise AskedWrongly(f"{' and '.join(missing)} cannot be imported: install headrace[spark,lake]")


def start(name: str, master: str | None, conf: Mapping[str, str]) -> "SparkSession":
    """The one that runs in this process, if there is one."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    elif SUBMITTED not in os.environ:
        builder = builder.master("local[*]")
    for key, value in {**OURS, **conf}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if "spark.log.level" not in conf:
        session.sparkContext.setLogLevel("ERROR")
    return session
