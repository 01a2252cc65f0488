"""What the driver does at the end of a batch: all tasks' transactions are committed together, and once."""

import asyncio
import logging
import socket
from collections.abc import Sequence

from headrace.client.commit_group import BatchRefused, CommitGroups, Decided, Handle
from headrace.client.errors import NotReachable, TimedOut
from headrace.core.commit_group import ABORTED
from headrace.errors import ErrorCode, KafkaError
from headrace.spark.door import door
from headrace.spark.driver_claims import Driver, DriverAhead, DriverClaims, OlderCheckpoint
from headrace.spark.kept import claims_of, groups_of, offers_groups
from headrace.spark.messages import Written
from headrace.spark.run_name import RunName, host_name, read_run_name, write_of
from headrace.spark.scope import Scope, check_place
from headrace.spark.task import Group
from headrace.spark.write_options import WriteOptions
from headrace.spark.writing import say_at_least_once

log = logging.getLogger(__name__)

Messages = Sequence[object]
PLACE_S_MAX = 10


class SecondWrite(KafkaError):
    """Another write of the same run has had the batch. Nothing of this one is ever read."""

    def __init__(self, group: Group) -> None:
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"batch {group.batch_id} of query {group.query_id} was written before by this very run, under the same "
            f"scope ({group.scope}), and nothing of this second write is there: where a query writes more than once in "
            "a batch, give each write an option scope of its own, the same after every restart. If this was another "
            "try at one write, restart the query",
        )


class JobGivenUp(KafkaError):
    """Nothing of it is ever read."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.INVALID_TXN_STATE,
            "the job is not committed: brokers have not heard of its driver for a minute, and took it for dead, so "
            "that nobody waits for its rows. Nothing of it can be read: run it again",
        )


class JobInDoubt(KafkaError):
    """Whoever takes it for failed and runs it again may write its rows twice."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(
            error.code,
            f"it is not known whether the job is committed: {error.message}. All of its rows will be readable, or none "
            "of them: look into the topic before you run it again",
        )


def commit_batch(options: WriteOptions, messages: Messages, batch_id: int) -> None:
    """Of a stream. KafkaError: nothing was committed, or it is not known; Spark comes again with the same batch."""
    written = [message for message in messages if isinstance(message, Written)]
    if len(written) < len(messages):
        raise _unfit(f"{len(messages) - len(written)} tasks have not told what they wrote")
    group = _group_of(written)
    if group is None:
        _say_what_is_not_promised(options, written)
        return
    if group.batch_id != batch_id:
        raise _unfit(f"the tasks wrote batch {group.batch_id}, and batch {batch_id} is to be committed")
    driver = Driver(host_name(socket.gethostname()), group.run_id, written[0].app_start_ms)
    at = door()
    groups = groups_of(at, options.bootstrap)
    at.run(_commit(options, groups, claims_of(at), group, driver, _handles(written)))


def abort_batch(options: WriteOptions, messages: Messages) -> None:
    """Of a stream. What is committed stays so."""
    written = [message for message in messages if isinstance(message, Written)]
    handles = _handles(written)
    if not handles:
        return
    try:
        group = _group_of(written)
        assert group is not None
        at = door()
        at.run(groups_of(at, options.bootstrap).abort(*group, handles))
    except KafkaError as error:
        log.warning("transactions are left to time out: %s", error)


def commit_job(options: WriteOptions, messages: Messages) -> None:
    """Of a batch job: the only one under its id."""
    written = [message for message in messages if isinstance(message, Written)]
    if len(written) < len(messages):
        raise _unfit(f"{len(messages) - len(written)} tasks have not told what they wrote")
    group = _group_of(written)
    if group is None:
        _say_what_is_not_promised(options, written)
        return
    # Without rows too: else brokers wait for more of it, and then take its driver for dead.
    handles = _handles(written)
    at = door()
    try:
        decided = at.run(
            _decide(groups_of(at, options.bootstrap), group, group.run_id, handles, options.transaction_ms_max)
        )
    except (NotReachable, TimedOut) as error:
        raise JobInDoubt(error) from error
    if decided.already:
        if decided.run_id != group.run_id:
            raise JobGivenUp
        log.info("job %s was committed before: that was not heard", group.query_id)


def abort_job(options: WriteOptions, group: Group) -> None:
    """It is decided that nothing of the job is ever read, unless it is committed. That ends attempts of which nobody
    knows, too: else whoever reads what is committed would wait for them until they time out."""
    if options.guarantee == "at_least_once":
        return
    try:
        at = door()
        if not offers_groups(at, options.bootstrap):
            return
        ended = group._replace(run_id=ABORTED)
        decided = at.run(groups_of(at, options.bootstrap).commit(*ended, []))
        if decided.already and decided.run_id == group.run_id:  # the answer to that was lost
            log.warning("job %s is committed, whatever else is told: all of its rows can be read", group.query_id)
    except KafkaError as error:
        log.warning("transactions are left to time out: %s", error)


async def _commit(
    options: WriteOptions,
    groups: CommitGroups,
    claims: DriverClaims,
    group: Group,
    driver: Driver,
    handles: Sequence[Handle],
) -> None:
    is_first = False
    if await claims.holds(options.bootstrap, group, driver):
        before = claims.runs_before(options.bootstrap, group)
    else:
        await check_place(groups, options.scope(), group.query_id)
        last = await groups.last(group.scope, group.query_id)
        before = await claims.take(options.bootstrap, group, driver, last)
        # Spark may commit in several processes in turn: whoever begins to hold the query need not begin the run.
        is_first = read_run_name(last.run_id).run_id != driver.run_id
    name = RunName(driver.run_id, driver.host, write_of(handles), before)
    decided = await _decide(groups, group, str(name), handles, options.transaction_ms_max)
    if decided.already:
        _check_who_did(decided, group, name, is_first, claims.displaced(options.bootstrap, group))
    if claims.is_place_due(options.bootstrap, group):
        await keep_place(groups, options.scope(), group.query_id)


async def keep_place(groups: CommitGroups, scope: Scope, query_id: str) -> None:
    """Brokers may forget what nobody asks for. It is no reason to stop if they do not answer just now."""
    try:
        async with asyncio.timeout(PLACE_S_MAX):
            await check_place(groups, scope, query_id)
    except (KafkaError, TimeoutError) as error:
        log.warning("the place of query %s was not asked for: %s", query_id, error or f"not in {PLACE_S_MAX} s")


async def _decide(
    groups: CommitGroups, group: Group, run_name: str, handles: Sequence[Handle], transaction_ms_max: int
) -> Decided:
    try:
        return await groups.commit(group.scope, group.query_id, group.batch_id, run_name, handles)
    except BatchRefused as refused:
        raise KafkaError(
            refused.code,
            f"{refused.message}; nothing of it can be read. A transaction is open for {transaction_ms_max} ms at most "
            "(option kafka.transaction.timeout.ms)",
        ) from refused


def _check_who_did(decided: Decided, group: Group, mine: RunName, is_first: bool, displaced: Driver | None) -> None:
    """Of a batch that had been committed before. That is well if this very call did it, whose answer was lost, or if it
    is the first one of a run, and the last that was written: Spark does a batch again of which it does not know the
    end, and no other one. Whoever lived and was displaced may have gone on meanwhile: it stops nevertheless, and who is
    started again goes on behind it."""
    did = read_run_name(decided.run_id)
    if did.run_id != mine.run_id and (not is_first or decided.last_committed > group.batch_id):
        if is_first and displaced is not None and displaced.run_id == did.run_id:
            raise DriverAhead(group, decided.last_committed, displaced)
        raise OlderCheckpoint(group, decided.last_committed, did)
    if did.run_id == mine.run_id and did.write != mine.write and decided.last_committed == group.batch_id:
        raise SecondWrite(group)
    level = logging.WARNING if decided.last_committed > group.batch_id else logging.INFO
    log.log(level, "batch %d of query %s was committed before, by run %s", group.batch_id, group.query_id, did.run_id)


def _group_of(written: Sequence[Written]) -> Group | None:
    """None: nothing is to be committed."""
    found = {message.group for message in written}
    if len(found) > 1:
        raise _unfit("its tasks do not agree on which batch it is")
    return found.pop() if found else None


def _say_what_is_not_promised(options: WriteOptions, written: Sequence[Written]) -> None:
    """Here too: few look into the logs of executors."""
    if written and options.guarantee is None:
        say_at_least_once(options.bootstrap)


def _handles(written: Sequence[Written]) -> list[Handle]:
    return [message.outcome.handle for message in written if message.outcome.handle is not None]


def _unfit(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"the batch is not committed: {reason}")
