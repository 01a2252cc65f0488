"""What a row costs from record batches to Arrow, without Spark and without a network.

    python -m bench.spark_decode

Microseconds of CPU per row, the best of several interleaved rounds: all seven columns, and the value alone. Half of
each value is random, so that it does not compress. Checksums are checked, as always.
"""

import random
import time
from typing import NamedTuple

import pyarrow as pa

from headrace.spark.decode.decoding import Decoder
from headrace.wire.batch import NewRecord, build
from headrace.wire.compression import Codec

ROUNDS = 7
LOG_BYTES = 4 << 20
TIME_MS = 1_700_000_000_000

SEVEN = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
VALUE = pa.schema([("value", pa.binary())])


class Case(NamedTuple):
    value_bytes: int
    batch_bytes: int
    codec: Codec


CASES = [Case(size, batch, codec) for size in (100, 1_000) for batch in (16 << 10, 1 << 20) for codec in Codec]


def log_of(case: Case) -> tuple[bytes, int]:
    """A log, and how many records it holds."""
    chance = random.Random(1)
    per_batch = case.batch_bytes // (case.value_bytes + 20)
    count = LOG_BYTES // (case.value_bytes + 20)
    log = bytearray()
    for base in range(0, count, per_batch):
        records = [
            NewRecord(
                TIME_MS + at, b"%08d" % at, chance.randbytes(case.value_bytes // 2) + bytes(case.value_bytes // 2)
            )
            for at in range(base, min(count, base + per_batch))
        ]
        log += build(records, codec=case.codec, base_offset=base)
    return bytes(log), count


def cpu_us_per_row(log: bytes, count: int, schema: pa.Schema) -> float:
    decoder = Decoder(schema, "orders", 0)
    begin = time.process_time()
    rows = sum(batch.num_rows for batch in decoder.decode(log, 0, count))
    spent_s = time.process_time() - begin
    assert rows == count
    return spent_s / count * 1e6


def main() -> None:
    logs = {case: log_of(case) for case in CASES}
    best = dict.fromkeys(((case, name) for case in CASES for name in ("seven", "value")), float("inf"))
    for _ in range(ROUNDS):
        for case, (log, count) in logs.items():
            for name, schema in (("seven", SEVEN), ("value", VALUE)):
                best[case, name] = min(best[case, name], cpu_us_per_row(log, count, schema))
    print("value  batch     codec     7 columns  value only   (CPU µs per row)")
    for case in CASES:
        sizes = f"{case.value_bytes:5}  {case.batch_bytes:8}  {case.codec.name.lower():8}"
        print(f"{sizes}  {best[case, 'seven']:9.3f}  {best[case, 'value']:10.3f}")


if __name__ == "__main__":
    main()
