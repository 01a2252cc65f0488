"""FindCoordinator (10), InitProducerId (22)."""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import Int8, Int16, Int32, Int64, String, field


class FindCoordinatorRequest(Message, api=10, versions=(0, 5), flexible=3):
    key: String = field(default="", until=3)
    key_type: Int8 = field(default=0, since=1)
    coordinator_keys: list[String] = field(default_factory=list, since=4)


class Coordinator(Struct):
    key: String
    node_id: Int32 = -1
    host: String = ""
    port: Int32 = -1
    error_code: Int16 = 0
    error_message: String | None = None


class FindCoordinatorResponse(Message, api=10, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = field(default=0, since=1)
    error_code: Int16 = field(default=0, until=3)
    error_message: String | None = field(default=None, since=1, until=3)
    node_id: Int32 = field(default=-1, until=3)
    host: String = field(default="", until=3)
    port: Int32 = field(default=-1, until=3)
    coordinators: list[Coordinator] = field(default_factory=list, since=4)


class InitProducerIdRequest(Message, api=22, versions=(0, 5), flexible=2):
    transactional_id: String | None = None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field(default=-1, since=3)
    producer_epoch: Int16 = field(default=-1, since=3)


class InitProducerIdResponse(Message, api=22, versions=(0, 5), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
