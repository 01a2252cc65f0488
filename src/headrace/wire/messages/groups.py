"""JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), DescribeGroups (15), ListGroups (16),
DeleteGroups (42)."""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import Bool, Bytes, Int16, Int32, String, field

NOT_ASKED = -(2**31)


class JoinGroupProtocol(Struct):
    name: String
    metadata: Bytes


class JoinGroupRequest(Message, api=11, versions=(0, 9), flexible=6):
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field(default=-1, since=1)
    member_id: String
    group_instance_id: String | None = field(default=None, since=5)
    protocol_type: String
    protocols: list[JoinGroupProtocol]
    reason: String | None = field(default=None, since=8)


class JoinGroupResponseMember(Struct):
    member_id: String
    group_instance_id: String | None = field(default=None, since=5)
    metadata: Bytes


class JoinGroupResponse(Message, api=11, versions=(0, 9), flexible=6):
    throttle_time_ms: Int32 = field(default=0, since=2)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = field(default=None, since=7)
    protocol_name: String | None = field(default="", null=7)
    leader: String = ""
    skip_assignment: Bool = field(default=False, since=9)
    member_id: String = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)


class HeartbeatRequest(Message, api=12, versions=(0, 4), flexible=4):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(default=None, since=3)


class HeartbeatResponse(Message, api=12, versions=(0, 4), flexible=4):
    throttle_time_ms: Int32 = field(default=0, since=1)
    error_code: Int16 = 0


class MemberIdentity(Struct):
    member_id: String
    group_instance_id: String | None = None
    reason: String | None = field(default=None, since=5)


class LeaveGroupRequest(Message, api=13, versions=(0, 5), flexible=4):
    group_id: String
    member_id: String = field(default="", until=2)
    members: list[MemberIdentity] = field(default_factory=list, since=3)


class MemberResponse(Struct):
    member_id: String
    group_instance_id: String | None = None
    error_code: Int16 = 0


class LeaveGroupResponse(Message, api=13, versions=(0, 5), flexible=4):
    throttle_time_ms: Int32 = field(default=0, since=1)
    error_code: Int16 = 0
    members: list[MemberResponse] = field(default_factory=list, since=3)


class SyncGroupRequestAssignment(Struct):
    member_id: String
    assignment: Bytes


class SyncGroupRequest(Message, api=14, versions=(0, 5), flexible=4):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(default=None, since=3)
    protocol_type: String | None = field(default=None, since=5)
    protocol_name: String | None = field(default=None, since=5)
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupResponse(Message, api=14, versions=(0, 5), flexible=4):
    throttle_time_ms: Int32 = field(default=0, since=1)
    error_code: Int16 = 0
    protocol_type: String | None = field(default=None, since=5)
    protocol_name: String | None = field(default=None, since=5)
    assignment: Bytes = b""


class DescribeGroupsRequest(Message, api=15, versions=(0, 6), flexible=5):
    groups: list[String]
    include_authorized_operations: Bool = field(default=False, since=3)


class DescribedGroupMember(Struct):
    member_id: String
    group_instance_id: String | None = field(default=None, since=4)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: String | None = field(default=None, since=6)
    group_id: String
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: Int32 = field(default=NOT_ASKED, since=3)


class DescribeGroupsResponse(Message, api=15, versions=(0, 6), flexible=5):
    throttle_time_ms: Int32 = field(default=0, since=1)
    groups: list[DescribedGroup]


class ListGroupsRequest(Message, api=16, versions=(0, 5), flexible=3):
    states_filter: list[String] = field(default_factory=list, since=4)
    types_filter: list[String] = field(default_factory=list, since=5)


class ListedGroup(Struct):
    group_id: String
    protocol_type: String
    group_state: String = field(default="", since=4)
    group_type: String = field(default="", since=5)


class ListGroupsResponse(Message, api=16, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = field(default=0, since=1)
    error_code: Int16 = 0
    groups: list[ListedGroup] = field(default_factory=list)


class DeleteGroupsRequest(Message, api=42, versions=(0, 2), flexible=2):
    groups_names: list[String]


class DeletableGroupResult(Struct):
    group_id: String
    error_code: Int16 = 0


class DeleteGroupsResponse(Message, api=42, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]
