"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), WriteTxnMarkers (27), DescribeProducers (61),
DescribeTransactions (65), ListTransactions (66). What a producer begins with, InitProducerId, is in `coordinators`."""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import Bool, Int8, Int16, Int32, Int64, String, field


class AddPartitionsToTxnTopic(Struct):
    name: String
    partitions: list[Int32]


class AddPartitionsToTxnTransaction(Struct):
    """`verify_only` asks whether the partitions are in the transaction, and adds none."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnRequest(Message, api=24, versions=(0, 5), flexible=3):
    """Clients speak up to version 3. From 4 on it holds many transactions, and nodes ask each other."""

    transactions: list[AddPartitionsToTxnTransaction] = field(default_factory=list, since=4)
    v3_and_below_transactional_id: String = field(default="", until=3)
    v3_and_below_producer_id: Int64 = field(default=-1, until=3)
    v3_and_below_producer_epoch: Int16 = field(default=-1, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default_factory=list, until=3)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Struct):
    transactional_id: String
    topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(Message, api=24, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(default=0, since=4)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(default_factory=list, since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(default_factory=list, until=3)


class AddOffsetsToTxnRequest(Message, api=25, versions=(0, 4), flexible=3):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Message, api=25, versions=(0, 4), flexible=3):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


class EndTxnRequest(Message, api=26, versions=(0, 5), flexible=3):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Message, api=26, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = field(default=-1, since=5)
    producer_epoch: Int16 = field(default=-1, since=5)


class WritableTxnMarkerTopic(Struct):
    name: String
    partition_indexes: list[Int32]


class WritableTxnMarker(Struct):
    """`transaction_result` is true for a commit."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = field(default=0, since=2)


class WriteTxnMarkersRequest(Message, api=27, versions=(1, 2), flexible=1):
    markers: list[WritableTxnMarker]


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Struct):
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(Message, api=27, versions=(1, 2), flexible=1):
    markers: list[WritableTxnMarkerResult]


class DescribeProducersTopic(Struct):
    name: String
    partition_indexes: list[Int32]


class DescribeProducersRequest(Message, api=61, versions=(0, 0), flexible=0):
    topics: list[DescribeProducersTopic]


class ActiveProducer(Struct):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = -1
    current_txn_start_offset: Int64 = -1


class DescribeProducersPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: list[ActiveProducer] = field(default_factory=list)


class DescribeProducersTopicResult(Struct):
    name: String
    partitions: list[DescribeProducersPartitionResult]


class DescribeProducersResponse(Message, api=61, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersTopicResult]


class DescribeTransactionsRequest(Message, api=65, versions=(0, 0), flexible=0):
    transactional_ids: list[String]


class DescribedTransactionTopic(Struct):
    topic: String
    partitions: list[Int32]


class DescribedTransaction(Struct):
    error_code: Int16 = 0
    transactional_id: String
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = -1
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
    topics: list[DescribedTransactionTopic] = field(default_factory=list)


class DescribeTransactionsResponse(Message, api=65, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribedTransaction]


class ListTransactionsRequest(Message, api=66, versions=(0, 2), flexible=0):
    state_filters: list[String] = field(default_factory=list)
    producer_id_filters: list[Int64] = field(default_factory=list)
    duration_filter: Int64 = field(default=-1, since=1)
    transactional_id_pattern: String | None = field(default=None, since=2)


class ListedTransaction(Struct):
    transactional_id: String
    producer_id: Int64
    transaction_state: String


class ListTransactionsResponse(Message, api=66, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String] = field(default_factory=list)
    transaction_states: list[ListedTransaction] = field(default_factory=list)
