"""CommitGroup, version 0: the transactions of all tasks of a Spark batch are committed together, once. Or aborted; or
somebody asks which batch was the last, or says that the driver of a batch job lives. See commit_groups. Headrace's own.
"""

from headrace.broker.broker import Broker
from headrace.broker.coordinators.commit_groups import Batch, Outcome
from headrace.broker.coordinators.queries import QUERIES_MAX
from headrace.broker.handlers.transactional import may_use
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.commit_group import NO_BATCH, Handle, Op, fault_of, fault_of_batch
from headrace.core.transaction import Claim
from headrace.core.transactional_id import JOBS, query_key
from headrace.errors import ErrorCode
from headrace.wire.messages.commit_group import CommitGroupRequest, CommitGroupResponse

BAD_HANDLES_MAX = 100
"""That are told. They are all of the same kind, mostly."""


async def handle(broker: Broker, request: Request[CommitGroupRequest]) -> CommitGroupResponse:
    body = request.body
    handles = [Handle(one.transactional_id, Claim(one.producer_id, one.producer_epoch)) for one in body.handles]
    fault = fault_of(body.scope, body.query_id)
    if fault is None and body.op not in tuple(Op):
        fault = f"there is no operation {body.op}"
    if fault is None and body.op == Op.ALIVE and body.scope != JOBS:
        fault = "only drivers of batch jobs say that they live"
    if fault is None and body.op in (Op.COMMIT, Op.ABORT):
        fault = fault_of_batch(body.scope, body.query_id, body.batch_id, body.run_id, handles)
    if fault is not None:
        return CommitGroupResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=fault)
    query = query_key(body.scope, body.query_id)
    # Whoever may write with the attempts' ids may end them. Rights on ids that begin alike cover the query's name too.
    names = [query, *(one.transactional_id for one in handles)]
    if not all(may_use(broker, request.principal, Operation.WRITE, name) for name in names):
        return CommitGroupResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    groups = broker.transactions.groups
    if body.op == Op.QUERY:
        return _answer(groups.last(query))
    if body.op == Op.ALIVE:
        return _answer(groups.alive(query))
    batch = Batch(query, body.batch_id, body.run_id, handles)
    return _answer(await (groups.commit(batch) if body.op == Op.COMMIT else groups.abort(batch)))


MESSAGES = {
    ErrorCode.POLICY_VIOLATION: (
        f"the coordinator remembers {QUERIES_MAX:,} queries, and no more: set commit.group.retention.ms, after which "
        "those are forgotten that nobody runs any more"
    ),
    ErrorCode.UNKNOWN_SERVER_ERROR: (
        "what there is to be written of it may be too large for one record batch: use fewer tasks, or write fewer "
        "partitions in each"
    ),
}


def _answer(outcome: Outcome) -> CommitGroupResponse:
    last, bad = outcome.last, outcome.bad
    message = MESSAGES.get(outcome.error)
    if bad:
        message = f"{len(bad)} of the attempts are not open any more, or belong to somebody else: nothing was committed"
    return CommitGroupResponse(
        error_code=outcome.error,
        error_message=message,
        decided=outcome.decided,
        last_committed=NO_BATCH if last is None else last.batch_id,
        last_run_id=None if last is None else last.run_id,
        bad_handles=list(bad[:BAD_HANDLES_MAX]),
    )
