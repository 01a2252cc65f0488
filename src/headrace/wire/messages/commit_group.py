"""CommitGroup (18201): all transactions of one batch of one query end together. Headrace's own."""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import Bool, Int8, Int16, Int64, String, field


class GroupHandle(Struct):
    """The open transaction of one attempt."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16


class CommitGroupRequest(Message, api=18201, versions=(0, 0), flexible=0):
    """`op`: 0 query, 1 commit, 2 abort, 3 the driver of a batch job lives. 0 and 3 name scope and query id only."""

    op: Int8
    scope: String
    query_id: String
    batch_id: Int64 = -1
    run_id: String = ""
    handles: list[GroupHandle] = field(default_factory=list)


class CommitGroupResponse(Message, api=18201, versions=(0, 0), flexible=0):
    """`decided`: the batch was committed before, by whomever. `last_run_id` is of the last batch that was committed."""

    error_code: Int16 = 0
    error_message: String | None = None
    decided: Bool = False
    last_committed: Int64 = -1
    last_run_id: String | None = None
    bad_handles: list[String] = field(default_factory=list)
