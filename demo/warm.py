"""Set-up, once: numba compiles the loops that Spark reads and writes with, and keeps them beside their modules."""

import pyarrow as pa

from headrace.spark.decode.decoding import Decoder
from headrace.spark.encode.encoding import Encoder
from headrace.wire.batch import NewRecord, build
from headrace.wire.compression import Codec

TIME_MS = 1_700_000_000_000
COUNT = 3
SCHEMA = pa.schema(
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


def main() -> None:
    log = build([NewRecord(TIME_MS, b"k", b"v") for _ in range(COUNT)])
    for schema in (SCHEMA, pa.schema([SCHEMA.field("value")])):
        for data in (bytes(log), bytearray(log)):  # each kind of buffer is compiled for by itself
            rows = sum(batch.num_rows for batch in Decoder(schema, "orders", 0).decode(data, 0, COUNT))
            assert rows == COUNT
    keys, values = pa.array([b"k"] * COUNT), pa.array([b"v"] * COUNT)
    encoder = Encoder("sums", lambda topics: dict.fromkeys(topics, 2), codec=Codec.NONE)
    batch = pa.RecordBatch.from_arrays([keys, values], ["key", "value"])
    assert sum(records.record_count for _, records in encoder.encode(batch, TIME_MS)) == COUNT


if __name__ == "__main__":
    main()
