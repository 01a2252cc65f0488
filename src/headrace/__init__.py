"""Headrace: a partitioned log that speaks the Kafka protocol, made for Spark."""

__version__ = "0.1.0"
