"""What Spark has written down of a micro-batch before it began: up to which offsets it reads."""

from hashlib import blake2b
from typing import Any

from pyspark.sql import SparkSession

HEAD_LINES = 2
"""The version of the format, and times and settings of that moment."""


def plan_of(spark: SparkSession, checkpoint: str, batch_id: int) -> str:
    """The same whenever the batch is done again by this checkpoint. An older one, restored from a backup, plans a batch
    of the same number anew, and it ends elsewhere."""
    path, files = _of_batch(spark, checkpoint, batch_id)
    stream = files.open(path)
    try:
        content = bytes(stream.readAllBytes())
    finally:
        stream.close()
    return blake2b(content.split(b"\n", HEAD_LINES)[-1].strip(), digest_size=16).hexdigest()


def is_planned(spark: SparkSession, checkpoint: str, batch_id: int) -> bool:
    path, files = _of_batch(spark, checkpoint, batch_id)
    return bool(files.exists(path))


def _of_batch(spark: SparkSession, checkpoint: str, batch_id: int) -> tuple[Any, Any]:
    """The path, and the file system."""
    context = spark.sparkContext
    assert context._jvm is not None
    path = context._jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets/{batch_id}")
    return path, path.getFileSystem(context._jsc.hadoopConfiguration())
