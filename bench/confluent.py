"""confluent-kafka as a load of its own process; prints one line of JSON as the load generator does.

python -m bench.confluent produce PORT TOPIC RECORDS RECORD_BYTES [KEY=VALUE ...]
python -m bench.confluent consume PORT TOPIC PARTITIONS RECORDS
"""

import json
import os
import resource
import sys
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

FLUSH_S_MAX = 120


def produce(port: str, topic: str, records: int, record_bytes: int, settings: list[str]) -> float:
    failures: list[KafkaError] = []

    def failed(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    base: dict[str, object] = {"bootstrap.servers": f"127.0.0.1:{port}", "acks": 1, "on_delivery": failed}
    base["delivery.report.only.error"] = True
    producer = Producer({**base, **dict(setting.split("=", 1) for setting in settings)})
    value = os.urandom(record_bytes)
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1024 == 0:
            producer.poll(0)
    waiting = producer.flush(FLUSH_S_MAX)
    if failures or waiting:
        sys.exit(f"{len(failures)} records failed ({failures[:3]}), {waiting} without an answer")
    return records * record_bytes


def consume(port: str, topic: str, partitions: int, records: int) -> float:
    settings: dict[str, object] = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "bench"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    seen = size = 0
    deadline = time.monotonic() + FLUSH_S_MAX
    while seen < records and time.monotonic() < deadline:
        for message in consumer.consume(min(10_000, records - seen), timeout=5):
            value, error = message.value(), message.error()
            if error is not None or not isinstance(value, bytes):
                sys.exit(f"a record did not come: {error}")
            seen += 1
            size += len(value)
    if seen < records:
        sys.exit(f"only {seen} of {records} records came")
    consumer.close()
    return size


def main(mode: str, port: str, topic: str, *rest: str) -> None:
    began = time.monotonic()
    if mode == "produce":
        records = int(rest[0])
        size = produce(port, topic, records, int(rest[1]), list(rest[2:]))
    else:
        records = int(rest[1])
        size = consume(port, topic, int(rest[0]), records)
    wall_s = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {"wall_s": wall_s, "requests": records, "bytes": size, "client_cpu_s": used.ru_utime + used.ru_stime}
    print(json.dumps({**figures, "p50_us": 0, "p99_us": 0, "max_us": 0}))


if __name__ == "__main__":
    main(*sys.argv[1:])
