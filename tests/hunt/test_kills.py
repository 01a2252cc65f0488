"""The broker killed with -9 under load, again and again for minutes."""

from pathlib import Path

import pytest

from tests.cluster.stream import PARTITIONS, Stream
from tests.hunt.budget import rounds
from tests.interop.clients.confluent import Confluent
from tests.servers.choice import running_broker

KILLS_PER_TOPIC = 10
"""Then what was written is read back, and a new topic begins: a hunt of hours must not fill the disk."""


@pytest.mark.hunt
def test_no_kill_loses_doubles_or_reorders_what_was_acknowledged(tmp_path: Path) -> None:
    kills = records = topics = 0
    small_segments = {"log.segment.bytes": str(1 << 20)}
    with running_broker(tmp_path / "broker", small_segments) as broker:
        confluent = Confluent(broker.bootstrap)
        for random in rounds():
            topic = f"kills-{topics}"
            stream = Stream(confluent, topic, **{"enable.idempotence": True, "acks": "all", "linger.ms": 1})
            try:
                for _ in range(KILLS_PER_TOPIC):
                    stream.wait_for_acks(random.randrange(1, 8_000))
                    broker.kill()
                    broker.start()
                stream.wait_for_acks(1)
            finally:
                stream.finish()
            assert not stream.failed, stream.failed[:3]
            for partition, numbers in stream.read_back().items():
                assert numbers == list(range(partition, stream.sent, PARTITIONS))
            confluent.delete_topic(topic)
            kills, records, topics = kills + KILLS_PER_TOPIC, records + stream.sent, topics + 1
    print(f"{kills} kills, {records} records: each there once and in order")
