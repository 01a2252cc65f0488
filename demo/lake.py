"""The table of orders: how it is filled by `headrace pipeline lake`, and read back."""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from demo.plan import ORDERS

TABLE = "lake"


def start_lake(spark: SparkSession, bootstrap: str, directory: Path) -> None:
    stream = spark.readStream.format("headrace").option("kafka.bootstrap.servers", bootstrap)
    stream = stream.option("subscribe", ORDERS).option("startingOffsets", "earliest")
    schema = "number long, customer string, region string, cents long, at timestamp"
    rows = stream.load().select(f.from_json(f.col("value").cast("string"), schema).alias("one")).select("one.*")
    writer = rows.writeStream.format("parquet").queryName("lake").trigger(processingTime="2 seconds")
    writer = writer.option("checkpointLocation", str(directory / "checkpoints" / "lake"))
    writer.option("path", str(directory / TABLE)).start()


def numbers_in(directory: Path) -> list[int]:
    """Of the orders in the table."""
    import pyarrow.dataset as ds

    table = ds.dataset(str(directory / TABLE), format="parquet").to_table(columns=["number"])
    numbers: list[int] = table.column("number").to_pylist()
    return numbers
