"""The table of what is spoken."""

from headrace.wire.apis import APIS

ADVERTISED = {
    "Produce": (0, 0, 13),
    "Fetch": (1, 4, 18),
    "ListOffsets": (2, 1, 11),
    "Metadata": (3, 0, 13),
    "OffsetCommit": (8, 2, 10),
    "OffsetFetch": (9, 1, 10),
    "FindCoordinator": (10, 0, 5),
    "JoinGroup": (11, 0, 9),
    "Heartbeat": (12, 0, 4),
    "LeaveGroup": (13, 0, 5),
    "SyncGroup": (14, 0, 5),
    "DescribeGroups": (15, 0, 6),
    "ListGroups": (16, 0, 5),
    "ApiVersions": (18, 0, 4),
    "CreateTopics": (19, 2, 7),
    "DeleteTopics": (20, 1, 6),
    "DeleteRecords": (21, 0, 2),
    "InitProducerId": (22, 0, 5),
    "OffsetForLeaderEpoch": (23, 2, 4),
    "AddPartitionsToTxn": (24, 0, 3),
    "AddOffsetsToTxn": (25, 0, 4),
    "EndTxn": (26, 0, 4),
    "WriteTxnMarkers": (27, 1, 2),
    "TxnOffsetCommit": (28, 0, 4),
    "DescribeConfigs": (32, 1, 4),
    "AlterConfigs": (33, 0, 2),
    "DescribeLogDirs": (35, 1, 4),
    "CreatePartitions": (37, 0, 3),
    "DeleteGroups": (42, 0, 2),
    "ElectLeaders": (43, 0, 2),
    "IncrementalAlterConfigs": (44, 0, 1),
    "OffsetDelete": (47, 0, 0),
    "DescribeCluster": (60, 0, 2),
    "DescribeProducers": (61, 0, 0),
    "DescribeTransactions": (65, 0, 0),
    "ListTransactions": (66, 0, 2),
    "DescribeTopicPartitions": (75, 0, 0),
    "Own": (18200, 0, 0),
    "CommitGroup": (18201, 0, 0),
    "Inspect": (18203, 0, 0),
}


def test_clients_are_told_these_versions() -> None:
    told = {api.name: (api.key, api.advertised[0], api.advertised[-1]) for api in APIS.values() if api.advertised}
    assert told == ADVERTISED


DECODED = {"Produce": range(3, 14), "AddPartitionsToTxn": range(6), "EndTxn": range(6), "TxnOffsetCommit": range(6)}
"""Where that is something else than what clients are told."""


def test_what_is_told_is_decoded_except_the_oldest_produce_requests() -> None:
    for api in APIS.values():
        assert api.request.versions == api.response.versions == api.versions
        assert api.request.api == api.response.api == api.key
        assert api.request.flexible == api.response.flexible
        if api.advertised is not None:
            assert api.versions == DECODED.get(api.name, api.advertised)


def test_what_only_nodes_say_to_each_other_is_not_told_to_clients() -> None:
    assert {api.name for api in APIS.values() if api.advertised is None} == {"AlterPartition", "StepDown"}


def test_gaps_are_sentences() -> None:
    for api in APIS.values():
        assert all(gap.endswith(".") for gap in api.gaps)
