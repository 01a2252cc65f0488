"""Internal topics come into being when somebody first asks for a coordinator. Only the controller creates them.

Another node asks it as a client would: for a coordinator. Whoever asked meanwhile is told to come again.
"""

import asyncio
import logging

from headrace.broker.broker import Broker
from headrace.config import BrokerConfig
from headrace.controller.topics import NewTopic, Refusal
from headrace.core.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE, replication_factor
from headrace.errors import ErrorCode
from headrace.wire.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse

log = logging.getLogger(__name__)

CREATE_MS_MAX = 10_000
ASK_MS_MAX = 2_000
ASK_VERSION = 4
CLIENT_ID = "headrace-coordinator"
TRANSACTION_RECORD_BYTES_MAX = 16 << 20
"""One record names all partitions of a transaction, and one batch may end many transactions."""
KEY_TYPES = {CONSUMER_OFFSETS: 0, TRANSACTION_STATE: 1}


class InternalTopics:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def create(self, topic: str) -> None:
        """Begins, if nobody has: it is there when the image says so."""
        if topic in self._under_way or topic in self._broker.image.topics:
            return
        task = self._broker.loop.create_task(self._create(topic))
        self._under_way[topic] = task
        task.add_done_callback(lambda _: self._under_way.pop(topic, None))

    async def close(self) -> None:
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _create(self, topic: str) -> None:
        broker = self._broker
        if broker.controller.is_controller:
            wanted = spec(topic, broker.config, self._nodes())
            (created,) = await broker.controller.create_topics([wanted], timeout_ms=CREATE_MS_MAX)
            if isinstance(created, Refusal) and created.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.warning("%s was not created, and is tried again when somebody asks: %s", topic, created.message)
            return
        asked = FindCoordinatorRequest(key_type=KEY_TYPES[topic], coordinator_keys=[CLIENT_ID])
        try:
            await broker.peers.ask(
                broker.controller_id, asked, FindCoordinatorResponse, ASK_VERSION, ASK_MS_MAX, CLIENT_ID
            )
        except OSError as error:
            log.info("the controller did not hear that %s is needed: %s", topic, error)

    def _nodes(self) -> int:
        return sum(not node.is_shutting_down for node in self._broker.image.brokers.values())


def spec(topic: str, config: BrokerConfig, nodes: int) -> NewTopic:
    factor = min(replication_factor(topic, config), max(nodes, 1))
    settings = {"cleanup.policy": "compact", "compression.type": "producer"}
    if topic == CONSUMER_OFFSETS:
        partitions = config.offsets_topic_num_partitions
        settings["segment.bytes"] = str(config.offsets_topic_segment_bytes)
    else:
        partitions = config.transaction_state_log_num_partitions
        settings["segment.bytes"] = str(config.transaction_state_log_segment_bytes)
        # More than there are replicas acts as all of them, so that it holds when their number grows.
        settings["min.insync.replicas"] = str(config.transaction_state_log_min_isr)
        settings["unclean.leader.election.enable"] = "false"
        settings["max.message.bytes"] = str(TRANSACTION_RECORD_BYTES_MAX)
    return NewTopic(topic, partitions, factor, settings=settings)
