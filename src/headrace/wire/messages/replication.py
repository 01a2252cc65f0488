"""AlterPartition (56) and StepDown (18202): between nodes only."""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import Bool, Int8, Int16, Int32, Int64, Uuid, field, tagged


class BrokerState(Struct):
    """A member of the ISR that a leader proposes. Epoch -1 is that of a caller who knows none.

    The last four are Headrace's own: what it has of a tiered partition on its own disk.
    """

    broker_id: Int32
    broker_epoch: Int64 = -1
    local_log_start_offset: Int64 = tagged(10000, default=-1)
    coverage_since_ms: Int64 = tagged(10001, default=-1)
    local_bytes: Int64 = tagged(10002, default=-1)
    at_local_retention: Bool = tagged(10003, default=False)


class AlterPartitionPartitionData(Struct):
    """Kafka calls it PartitionData, as it calls another struct of Fetch.

    `resume` asks for the committed ISR again under the next partition epoch: nothing else that was sent under this
    one can be written after that. It is Headrace's own, and so is the log start, which is that of a tiered partition.
    """

    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = field(default_factory=list, until=2)
    new_isr_with_epochs: list[BrokerState] = field(default_factory=list, since=3)
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32
    resume: Bool = tagged(10012, default=False)
    log_start_offset: Int64 = tagged(10013, default=-1)


class AlterPartitionTopicData(Struct):
    topic_id: Uuid
    partitions: list[AlterPartitionPartitionData]


class AlterPartitionRequest(Message, api=56, versions=(2, 3), flexible=2):
    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionTopicData]


class AlterPartitionPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    isr: list[Int32] = field(default_factory=list)
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = -1


class AlterPartitionTopicResult(Struct):
    topic_id: Uuid
    partitions: list[AlterPartitionPartitionResult]


class AlterPartitionResponse(Message, api=56, versions=(2, 3), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[AlterPartitionTopicResult] = field(default_factory=list)


class StepDownPartition(Struct):
    topic_id: Uuid
    partition: Int32
    partition_epoch: Int32


class StepDownRequest(Message, api=18202, versions=(0, 0), flexible=0):
    """The controller is about to move these leaderships: the leader stops serving clients, then answers."""

    controller_epoch: Int64
    partitions: list[StepDownPartition]


class StepDownResult(Struct):
    topic_id: Uuid
    partition: Int32
    error_code: Int16 = 0


class StepDownResponse(Message, api=18202, versions=(0, 0), flexible=0):
    partitions: list[StepDownResult]
