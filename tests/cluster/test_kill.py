"""The broker is killed with -9 under load and started again, ten times."""

from random import Random

from tests.cluster.stream import Stream
from tests.interop.clients.confluent import Confluent
from tests.servers.process import BrokerProcess

KILLS = 10
SEED = 9


def test_what_was_acknowledged_is_there_once_and_in_order_after_ten_kills(broker: BrokerProcess) -> None:
    confluent = Confluent(broker.bootstrap)
    retrying = Stream(confluent, "retrying", **{"enable.idempotence": True, "acks": "all", "linger.ms": 1})
    once = Stream(confluent, "once", **{"enable.idempotence": False, "acks": 1, "retries": 0, "linger.ms": 1})
    random = Random(SEED)
    try:
        for _ in range(KILLS):
            retrying.wait_for_acks(random.randrange(100, 2_000))
            once.wait_for_acks(random.randrange(1, 500))
            broker.kill()
            broker.start()
        retrying.wait_for_acks(1_000)
        once.wait_for_acks(1_000)
    finally:
        retrying.finish()
        once.finish()

    # An idempotent producer repeats what was in doubt, and the broker drops what it has already.
    assert not retrying.failed, retrying.failed[:3]
    for partition, numbers in retrying.read_back().items():
        assert numbers == list(range(partition, retrying.sent, 3))

    # Without retries a record in doubt may or may not be there, but never twice.
    stored = once.read_back()
    for numbers in stored.values():
        assert numbers == sorted(set(numbers))
    assert set(once.acknowledged) <= {number for numbers in stored.values() for number in numbers}
    assert once.failed, "no request was under way at any of the kills: the load was too low"
    print(f"{KILLS} kills; {retrying.sent} records retried until acknowledged, {len(once.failed)} in doubt without")
