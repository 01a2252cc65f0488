"""What Spark tells when something fails is long; one sentence of it is the cause. Texts of Spark 4.2, shortened."""

import pytest

from headrace.pipeline.outcome import sentence_of

QUERY = """ SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: lake orders [id = 77ba8189-ebea-4c21-8e2c-064e389ccf23, runId = 4c60cb00-dec0-40a5-9947-c3f6f8ae493e]
Current Committed Offsets: {org.apache.spark.sql.PythonMicroBatchStream@7a2f17c9: {"orders": {"0": 10}}}

Current State: ACTIVE
Thread State: RUNNABLE

Logical Plan:
~WriteToMicroBatchDataSourceV1 ForeachBatchSink, 77ba8189, [queryName=lake orders], Append"""
FAILED = "[STREAM_FAILED] Query [id = 77ba8189, runId = 4c60cb00] terminated with exception: "

OF_THE_SOURCE = f"""{FAILED}[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source \
perform latestOffset: Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 281, in main
    latest_offset_admission_control_func(reader, infile, outfile)
  File "stream_planning.py", line 155, in _accepted
    raise DataLoss(loss)
headrace.spark.verdicts.DataLoss: AGED_OUT: records of orders-0 from offset 10 to 14 were deleted before they were read
{QUERY}"""

OF_A_TASK = f"""{FAILED}[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach \
batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "captured.py", line 257, in deco
    raise converted from None
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "files.py", line 148, in flush
    self._fs.create_dir(self._where.rpartition("/")[0], recursive=True)
NotADirectoryError: [Errno 20] Cannot create directory '/data/orders/_headrace'. Detail: [errno 20] Not a directory
{QUERY}"""

OF_JAVA = """An error occurred while calling o912.start.
: org.apache.hadoop.fs.FileAlreadyExistsException: Destination exists and is not a directory: /data/checkpoint
\tat org.apache.hadoop.fs.RawLocalFileSystem.mkdirsWithOptionalPermission(RawLocalFileSystem.java:898)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""

OF_JAVA_WITH_A_CAUSE = """An error occurred while calling o933.start.
: org.apache.spark.SparkException: [CANNOT_LOAD_CHECKPOINT_FILE_MANAGER.ERROR_LOADING_CLASS] Error loading streaming \
checkpoint file manager for path=hdfs://nowhere:1/x. msg=java.lang.IllegalArgumentException
\tat org.apache.spark.sql.execution.streaming.StreamingErrors$.cannotLoad(StreamingErrors.scala:30)
Caused by: java.lang.IllegalArgumentException: java.net.UnknownHostException: nowhere
\tat org.apache.hadoop.security.SecurityUtil.buildTokenService(SecurityUtil.java:487)
\t... 21 more
Caused by: java.net.UnknownHostException: nowhere
\t... 101 more
"""

OF_A_JOB = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 0.0 (TID 0) (host executor driver): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "worker.py", line 3, in work
headrace.errors.KafkaError: node 2 is away

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:1)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 3, in work
headrace.errors.KafkaError: node 2 is away

\t... 1 more
"""


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (OF_THE_SOURCE, "AGED_OUT: records of orders-0 from offset 10 to 14 were deleted before they were read"),
        (
            OF_A_TASK,
            "[Errno 20] Cannot create directory '/data/orders/_headrace'. Detail: [errno 20] Not a directory",
        ),
        (OF_JAVA, "Destination exists and is not a directory: /data/checkpoint"),
        (OF_JAVA_WITH_A_CAUSE, "UnknownHostException: nowhere"),
        (OF_A_JOB, "node 2 is away"),
        (f"{FAILED}[SOME_CODE] It was so.{QUERY}", "[SOME_CODE] It was so"),
        ("plainly so.", "plainly so"),
        ("", "RuntimeError"),
    ],
)
def test_of_all_that_spark_tells_the_sentence_of_the_cause_is_told(told: str, sentence: str) -> None:
    assert sentence_of(RuntimeError(told)) == sentence
