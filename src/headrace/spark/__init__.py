"""Spark's way to Headrace: `spark.read / readStream / write / writeStream.format("headrace")`, in PySpark alone."""
