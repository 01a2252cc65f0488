"""What a row costs from Arrow to record batches, without Spark and without a network.

    python -m bench.spark_encode

Microseconds of CPU per row, the best of several interleaved rounds: key and value, by the hash of the key into eight
partitions, and the value alone into one. Half of each value is random, so that it does not compress.
"""

import random
import time
from typing import NamedTuple

import pyarrow as pa

from headrace.spark.encode.encoding import Encoder
from headrace.wire.batch import seal
from headrace.wire.compression import Codec

ROUNDS = 5
ROWS = 10_000
TIME_MS = 1_700_000_000_000
PARTITIONS = 8


class Case(NamedTuple):
    value_bytes: int
    codec: Codec


CASES = [Case(size, codec) for size in (100, 1_000) for codec in Codec]


def rows_of(case: Case) -> pa.RecordBatch:
    chance = random.Random(1)
    half = case.value_bytes // 2
    values = [chance.randbytes(half) + bytes(half) for _ in range(ROWS)]
    keys = [b"%08d" % at for at in range(ROWS)]
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], ["key", "value"])


def cpu_us_per_row(batch: pa.RecordBatch, codec: Codec) -> float:
    encoder = Encoder("orders", lambda topics: dict.fromkeys(topics, PARTITIONS), codec=codec)
    begin = time.process_time()
    count = 0
    for _, records in encoder.encode(batch, TIME_MS):
        seal(records)
        count += records.record_count
    spent_s = time.process_time() - begin
    assert count == batch.num_rows
    return spent_s / count * 1e6


def main() -> None:
    batches = {case: rows_of(case) for case in CASES}
    best = dict.fromkeys(((case, name) for case in CASES for name in ("both", "value")), float("inf"))
    for _ in range(ROUNDS):
        for case, batch in batches.items():
            for name, rows in (("both", batch), ("value", batch.select(["value"]))):
                best[case, name] = min(best[case, name], cpu_us_per_row(rows, case.codec))
    print("value  codec   key and value  value only   (CPU µs per row)")
    for case in CASES:
        both, value = best[case, "both"], best[case, "value"]
        print(f"{case.value_bytes:5}  {case.codec.name.lower():6}  {both:13.3f}  {value:10.3f}")


if __name__ == "__main__":
    main()
