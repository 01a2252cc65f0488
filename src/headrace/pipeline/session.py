"""The Spark session of a pipeline: on the master that is given, or that spark-submit chose, or on this machine."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.pipeline.outcome import AskedWrongly, sentence_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which knows the master by itself."""

OURS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
}
_LOOK_AT = "look at --master and --conf, and whether there is a Java that Spark takes (java -version, JAVA_HOME)"
QUERY_LOGGER = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
NEEDED = ("pyspark", "pyarrow", "numba")


def check_installed(*further: str) -> None:
    """AskedWrongly, before a JVM is started for nothing."""
    if missing := not_installed(*further):
        raise AskedWrongly(missing)


def not_installed(*further: str) -> str:
    """A sentence, or nothing."""
    from importlib.util import find_spec

    missing = [name for name in (*NEEDED, *further) if find_spec(name) is None]
    return f"{' and '.join(missing)} cannot be imported: install headrace[spark,lake]" if missing else ""


@contextmanager
def opened(
    name: str, master: str | None, conf: Mapping[str, str], given: "SparkSession | None" = None
) -> "Iterator[SparkSession]":
    """A session beside the one that is given, or that runs in this process; or else one of its own, which ends with it.

    AskedWrongly if Spark does not start so.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if given is None and SparkContext._active_spark_context is None:
        session = _started(name, master, conf)
        try:
            yield session
        finally:
            session.stop()
        return
    session = (given or SparkSession.builder.getOrCreate()).newSession()
    for key, value in conf.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    yield session


def _started(name: str, master: str | None, conf: Mapping[str, str]) -> "SparkSession":
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    elif SUBMITTED not in os.environ:
        builder = builder.master("local[*]")
    for key, value in {**OURS, **conf}.items():
        builder = builder.config(key, value)
    try:
        with _own_interrupt():
            session = builder.getOrCreate()
        if "spark.log.level" not in conf:
            session.sparkContext.setLogLevel("ERROR")
            _hush(session)
    except (PySparkException, Py4JError, OSError) as error:
        raise AskedWrongly(f"Spark does not start: {sentence_of(error)}; {_LOOK_AT}") from error
    return session


def _hush(session: "SparkSession") -> None:
    """Why a query ended is one sentence of ours; Spark would tell it before that with the traces of both languages."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(QUERY_LOGGER, log4j.Level.OFF)


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Spark puts a handler of its own in the place of whatever Ctrl-C does here; what it did, it does afterwards."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
