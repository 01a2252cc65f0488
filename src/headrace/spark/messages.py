"""What a task tells the driver."""

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from headrace.spark.task import Group
from headrace.spark.writing import Outcome


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    outcome: Outcome
    group: Group | None = None
    """None: without a transaction, at least once."""
    app_start_ms: int = 0
