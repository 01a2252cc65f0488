"""For Spark's Python processes in tests: they take pyspark from where it is installed, compiled, and not from a zip
without compiled modules, which costs each of them most of a second."""

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
