"""Own (18200): who may read or write what, told by one connection of one process. Headrace's own."""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, String, Uuid, tagged


class OwnResource(Struct):
    """`topic-partition` where there is such a partition, else any name. Generation 0 resets."""

    resource: String
    generation: Int32


class OwnRequest(Message, api=18200, versions=(0, 0), flexible=0):
    """`op`: 0 claim, 1 release, 2 resume, 3 claim if unowned, 4 describe. `exclusive`: bit 0 produce, bit 1 fetch."""

    group: String
    resources: list[OwnResource]
    bind_client_id: String | None = tagged(0, default=None)
    op: Int8 = tagged(1, default=0)
    retain_ms: Int64 = tagged(2, default=-1)
    exclusive: Int8 = tagged(3, default=0)
    wait_ms: Int32 = tagged(4, default=0)
    holder: Uuid = tagged(5, default=ZERO_UUID)


class OwnLeader(Struct):
    """Whom to ask about the resource; epoch -1 for one that is no partition."""

    id: Int32 = -1
    epoch: Int32 = -1
    host: String = ""
    port: Int32 = -1


class OwnOwner(Struct):
    client_id: String
    address: String
    since_ms: Int64
    """For how long."""


class OwnResult(Struct):
    resource: String
    generation: Int32 = 0
    error_code: Int16 = 0
    fence_offset: Int64 = tagged(0, default=-1)
    leader: OwnLeader | None = tagged(1, default=None)
    owner: OwnOwner | None = tagged(2, default=None)


class OwnResponse(Message, api=18200, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    group: String = ""
    resources: list[OwnResult]
