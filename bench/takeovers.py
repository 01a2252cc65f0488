"""How long it takes to put a writer out and another one in: by `own`, and by a transactional id."""

import asyncio
import time

from confluent_kafka import Producer

from bench.raw import RawClient
from headrace import own
from tests.servers.process import BrokerProcess

TOPIC = "takeovers"
GROUP = "writers"
RESOURCE = f"{TOPIC}-0"


def prepare(broker: BrokerProcess) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(TOPIC, 1)


def take_over(broker: BrokerProcess, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds from the claim to its answer, and to the first acknowledged write of the new owner.

    The old owner holds the partition exclusively and lives. The new one's connections to the broker are new too.
    """
    return asyncio.run(_take_over(broker.bootstrap, rounds))


async def _take_over(bootstrap: str, rounds: int) -> tuple[list[float], list[float]]:
    granted_s, written_s = [], []
    generation = 0
    for _ in range(rounds + 1):
        async with own.claim(bootstrap, GROUP, [RESOURCE], generation=generation, exclusive=True) as old:
            async with old.producer(linger_ms=0) as producer:
                await producer.send(TOPIC, b"old", partition=0)
            held = old.generations[RESOURCE]
            began = time.monotonic()
            async with own.claim(bootstrap, GROUP, [RESOURCE], generation=held, exclusive=True) as new:
                granted_s.append(time.monotonic() - began)
                async with new.producer(linger_ms=0) as producer:
                    await producer.send(TOPIC, b"new", partition=0)
                    written_s.append(time.monotonic() - began)
                generation = new.generations[RESOURCE]
    return granted_s[1:], written_s[1:]  # the first one imports and compiles


def fence(broker: BrokerProcess, rounds: int) -> list[float]:
    """Seconds from `init_transactions` of a second librdkafka producer, while the first is inside a transaction, to the
    commit of the second one's first record: until then nobody reads it."""
    return [_fence(broker.bootstrap, f"writer-{number}") for number in range(rounds + 1)][1:]


def _fence(bootstrap: str, transactional_id: str) -> float:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 2, "linger.ms": 0}
    old, new = Producer(settings), Producer(settings)
    old.init_transactions()
    old.begin_transaction()
    old.produce(TOPIC, b"old", partition=0)
    old.flush()
    began = time.monotonic()
    new.init_transactions()
    new.begin_transaction()
    new.produce(TOPIC, b"new", partition=0)
    new.commit_transaction()
    return time.monotonic() - began
