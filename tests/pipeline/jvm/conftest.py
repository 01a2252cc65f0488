"""The Spark session and the broker process of the tests of the source and the sink, which take seconds to start."""

from tests.spark.jvm.conftest import broker, scratch, spark

__all__ = ["broker", "scratch", "spark"]
