"""THE table of what is spoken: it feeds dispatch, the ApiVersions answer and docs/COMPATIBILITY.md."""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from headrace.wire.messages import (
    commit_group,
    configs,
    coordinators,
    elections,
    fetch,
    group_offsets,
    groups,
    inspection,
    log_dirs,
    metadata,
    offsets,
    own,
    produce,
    replication,
    topics,
    transactions,
    versions,
)
from headrace.wire.struct import Message


@dataclass(frozen=True, slots=True)
class Api:
    """`versions` is what is decoded; `advertised` is what clients are told, or None for requests between nodes."""

    key: int
    name: str
    request: type[Message]
    response: type[Message]
    versions: range
    advertised: range | None
    gaps: tuple[str, ...] = ()


def _api(
    request: type[Message], response: type[Message], *gaps: str, advertised: tuple[int, int] | None = None
) -> tuple[int, Api]:
    """A row whose key, name and versions are those of its messages."""
    spoken = request.versions if advertised is None else range(advertised[0], advertised[1] + 1)
    name = request.__name__.removesuffix("Request")
    return request.api, Api(request.api, name, request, response, request.versions, spoken, gaps)


def _between_nodes(request: type[Message], response: type[Message], *gaps: str) -> tuple[int, Api]:
    key, api = _api(request, response, *gaps)
    return key, replace(api, advertised=None)


_ONLY_TOPICS_AND_BROKERS: Final = "Only topics and brokers have settings: other resources get INVALID_REQUEST."

APIS: Final = MappingProxyType(
    dict(
        (
            _api(
                produce.ProduceRequest,
                produce.ProduceResponse,
                "Versions 0 to 2 are advertised, because some clients compress only if they see them, but refused: "
                "the connection is closed, as Kafka 4 does.",
                advertised=(0, 13),
            ),
            _api(
                fetch.FetchRequest,
                fetch.FetchResponse,
                "The high watermark that a follower may tell from version 18 on is read and not used.",
            ),
            _api(
                offsets.ListOffsetsRequest,
                offsets.ListOffsetsResponse,
                "Earliest local (-4), latest tiered (-5) and earliest pending upload (-6) never wait for the tier; "
                "lookups by time may, each for its own partition.",
            ),
            _api(metadata.MetadataRequest, metadata.MetadataResponse),
            _api(
                coordinators.FindCoordinatorRequest,
                coordinators.FindCoordinatorResponse,
                "Version 6 (share groups) is not spoken.",
            ),
            _api(
                group_offsets.OffsetCommitRequest,
                group_offsets.OffsetCommitResponse,
                "Groups of the new protocol (KIP-848) do not exist: their member epochs are generations here.",
            ),
            _api(
                group_offsets.OffsetFetchRequest,
                group_offsets.OffsetFetchResponse,
                "Groups of the new protocol (KIP-848) do not exist: member ids and epochs are not looked at.",
            ),
            _api(groups.JoinGroupRequest, groups.JoinGroupResponse),
            _api(groups.HeartbeatRequest, groups.HeartbeatResponse),
            _api(groups.LeaveGroupRequest, groups.LeaveGroupResponse),
            _api(groups.SyncGroupRequest, groups.SyncGroupResponse),
            _api(groups.DescribeGroupsRequest, groups.DescribeGroupsResponse),
            _api(groups.ListGroupsRequest, groups.ListGroupsResponse),
            _api(versions.ApiVersionsRequest, versions.ApiVersionsResponse),
            _api(topics.CreateTopicsRequest, topics.CreateTopicsResponse),
            _api(topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
            _api(offsets.DeleteRecordsRequest, offsets.DeleteRecordsResponse),
            _api(
                coordinators.InitProducerIdRequest,
                coordinators.InitProducerIdResponse,
                "Version 6 (two-phase commit) is not spoken.",
            ),
            _api(offsets.OffsetForLeaderEpochRequest, offsets.OffsetForLeaderEpochResponse),
            _api(
                transactions.AddPartitionsToTxnRequest,
                transactions.AddPartitionsToTxnResponse,
                "Versions 4 and 5 are for nodes only, as in Kafka: they are decoded and not advertised.",
                advertised=(0, 3),
            ),
            _api(transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse),
            _api(
                transactions.EndTxnRequest,
                transactions.EndTxnResponse,
                "Version 5 (an epoch per transaction) is not advertised: the feature `transaction.version` is off.",
                advertised=(0, 4),
            ),
            _api(transactions.WriteTxnMarkersRequest, transactions.WriteTxnMarkersResponse),
            _api(
                group_offsets.TxnOffsetCommitRequest,
                group_offsets.TxnOffsetCommitResponse,
                "Version 5 is not advertised: the feature `transaction.version` is not finalised.",
                advertised=(0, 4),
            ),
            _api(configs.DescribeConfigsRequest, configs.DescribeConfigsResponse, _ONLY_TOPICS_AND_BROKERS),
            _api(configs.AlterConfigsRequest, configs.AlterConfigsResponse, _ONLY_TOPICS_AND_BROKERS),
            _api(
                log_dirs.DescribeLogDirsRequest,
                log_dirs.DescribeLogDirsResponse,
                "Version 5 (cordoned directories) is not spoken.",
            ),
            _api(topics.CreatePartitionsRequest, topics.CreatePartitionsResponse),
            _api(groups.DeleteGroupsRequest, groups.DeleteGroupsResponse),
            _api(
                elections.ElectLeadersRequest,
                elections.ElectLeadersResponse,
            ),
            _api(
                configs.IncrementalAlterConfigsRequest,
                configs.IncrementalAlterConfigsResponse,
                _ONLY_TOPICS_AND_BROKERS,
            ),
            _api(group_offsets.OffsetDeleteRequest, group_offsets.OffsetDeleteResponse),
            _between_nodes(replication.AlterPartitionRequest, replication.AlterPartitionResponse),
            _api(
                metadata.DescribeClusterRequest,
                metadata.DescribeClusterResponse,
                "Controllers have no endpoints of their own: asking for them gets MISMATCHED_ENDPOINT_TYPE.",
            ),
            _api(
                metadata.DescribeTopicPartitionsRequest,
                metadata.DescribeTopicPartitionsResponse,
                "Eligible leader replicas are not kept: their lists are empty.",
            ),
            _api(own.OwnRequest, own.OwnResponse, "Headrace's own: see `own.enable` and `own.advertise`."),
            _api(
                commit_group.CommitGroupRequest,
                commit_group.CommitGroupResponse,
                "Headrace's own: the transactions of all tasks of a Spark batch are committed together, once.",
            ),
            _api(transactions.DescribeProducersRequest, transactions.DescribeProducersResponse),
            _api(transactions.DescribeTransactionsRequest, transactions.DescribeTransactionsResponse),
            _api(
                transactions.ListTransactionsRequest,
                transactions.ListTransactionsResponse,
                "A pattern for ids (version 2) knows no flags, named groups and Unicode classes.",
            ),
            _between_nodes(replication.StepDownRequest, replication.StepDownResponse, "Headrace's own."),
            _api(
                inspection.InspectRequest,
                inspection.InspectResponse,
                "Headrace's own: what a node knows of itself, as JSON.",
            ),
        )
    )
)
