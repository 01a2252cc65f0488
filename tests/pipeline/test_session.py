"""A session that cannot be is refused with a sentence."""

import os
import subprocess
import sys

PROGRAM = """
from headrace.pipeline import session
from headrace.pipeline.outcome import AskedWrongly

try:
    with session.opened("test", None, {}):
        print("it runs")
except AskedWrongly as refused:
    print(refused)
"""


def test_without_a_java_that_is_said() -> None:
    environment = {**os.environ, "JAVA_HOME": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60)
    (said,) = done.stdout.splitlines()
    assert said.startswith("Spark does not start: ") and "whether there is a Java that Spark takes" in said
    assert "/nowhere/bin/java" in done.stderr
