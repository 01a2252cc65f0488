"""One driver per query: the newest one. Whoever drives a query owns it, in the sense of `headrace.own`.

What is committed does not depend on it, a batch is committed once whoever asks for it. But two drivers on one
checkpoint write all rows twice for nothing, so the older one is stopped, and told by whom.

A driver that comes first takes over, whoever has the query. One that has had it does not: it was taken from it. And one
that comes with an older checkpoint, restored from a backup, is stopped before its rows are taken for written.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.commit_group import Last
from headrace.client.outside import Outside
from headrace.errors import ErrorCode, KafkaError
from headrace.own import AlreadyOwned, Ownership, OwnershipLost, claim
from headrace.spark.run_name import RunName, read_run_name
from headrace.spark.task import Group

log = logging.getLogger(__name__)

OWN_GROUP = "spark"
CLAIM_MS_MAX = 15_000
REGAIN_S_MAX = 10.0
CLAIMS_MAX = 64
"""Queries of one process."""

TRIES = 3
PLACE_AGAIN_MS = 10 * 60_000
"""Where `commit.group.retention.ms` is set, brokers forget a place for which nobody asks."""


class Driver(NamedTuple):
    """One run of a query on one machine."""

    host: str
    run_id: str
    app_start_ms: int
    """For people who look at who owns what. It does not say who is newer: an old application may begin a new run."""

    @property
    def client_id(self) -> str:
        return f"headrace-spark/{self.host}/{self.run_id}/{self.app_start_ms}/"


class NewerDriver(KafkaError):
    """This driver is to stop."""

    def __init__(self, query_id: str, host: str) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"query {query_id} was taken over by a newer driver on {host}, which works on the same checkpoint: "
            "this one stops, and nothing that it has not committed can be read",
        )


class OlderCheckpoint(KafkaError):
    """A checkpoint that is behind what was written by more than the one batch that is done again after a crash."""

    def __init__(self, group: Group, last: int, run: RunName) -> None:
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"the checkpoint is older than what was written: batch {group.batch_id} of query {group.query_id} comes, "
            f"and batch {last} was written before, by run {run.run_id} on {run.host or 'another machine'}. Rows that "
            "differ from those of then would be lost, so nothing is written: go on with the checkpoint of then; or "
            "give option scope=<another name>, and all from here on is written, what was written before too; or, if "
            "another driver works on this checkpoint, let only one of them run",
        )


class DriverAhead(KafkaError):
    """Another driver was at work on the same checkpoint, and did more batches while this one began with its first."""

    def __init__(self, group: Group, last: int, other: Driver) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"another driver works on this checkpoint: run {other.run_id} on {other.host} has written batch {last} of "
            f"query {group.query_id} while this one was at batch {group.batch_id}, and Spark lets only one of them go "
            "on: stop that one, and start this one again. Nothing that this one wrote can be read",
        )


@dataclass(slots=True)
class _Claim:
    run_id: str
    ownership: Ownership
    stack: AsyncExitStack
    runs_before: tuple[str, ...]
    place_seen_ms: int
    displaced: Driver | None
    """Who was at work when this driver came."""


class DriverClaims:
    """Of one process, on its event loop."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], _Claim] = {}
        self._now_ms = Outside().clock.monotonic_ms

    async def holds(self, bootstrap: str, group: Group, driver: Driver) -> bool:
        """Whether the query is this driver's, as it was after its last batch."""
        known = self._claims.get((bootstrap, _resource(group)))
        return known is not None and known.run_id == driver.run_id and await _is_held(known.ownership)

    def runs_before(self, bootstrap: str, group: Group) -> tuple[str, ...]:
        """Of a query that this driver holds: as `take` told."""
        return self._claims[bootstrap, _resource(group)].runs_before

    async def take(self, bootstrap: str, group: Group, driver: Driver, last: Last) -> tuple[str, ...]:
        """NewerDriver when the query belongs to somebody else, OlderCheckpoint when it belongs to nobody and is further
        than this driver. `last`: of its batches, as it is known just now. Tells marks of the runs before this one."""
        known = self._claims.get((bootstrap, _resource(group)))
        if known is not None and known.run_id != driver.run_id:  # an application has one run of a query at a time
            await self._drop(bootstrap, _resource(group))
            known = None
        last_run = read_run_name(last.run_id)
        has_had_it = last_run.knows(driver.run_id) or known is not None
        try:
            await self._claim(bootstrap, group, driver, last, has_had_it)
        except (NewerDriver, OlderCheckpoint):
            raise
        except KafkaError as error:
            if last.batch_id > group.batch_id:
                raise _older(group, last) from error
            log.warning("query %s is not owned, and goes on without: %s", group.query_id, error)
        return last_run.runs_before(driver.run_id)

    def displaced(self, bootstrap: str, group: Group) -> Driver | None:
        """Whom this driver took the query from, if that one lived."""
        known = self._claims.get((bootstrap, _resource(group)))
        return None if known is None else known.displaced

    def is_place_due(self, bootstrap: str, group: Group) -> bool:
        """Whether it is time to ask for the place of the query again, as the caller does now."""
        known = self._claims.get((bootstrap, _resource(group)))
        now_ms = self._now_ms()
        if known is None or now_ms - known.place_seen_ms < PLACE_AGAIN_MS:
            return False
        known.place_seen_ms = now_ms
        return True

    async def close(self) -> None:
        for bootstrap, resource in list(self._claims):
            await self._drop(bootstrap, resource)

    async def _claim(self, bootstrap: str, group: Group, driver: Driver, last: Last, has_had_it: bool) -> None:
        resource = _resource(group)
        last_run = read_run_name(last.run_id)
        is_behind = last.batch_id >= group.batch_id and last_run.run_id != driver.run_id
        generation: int | None = None
        has_displaced = False
        displaced: Driver | None = None
        for _ in range(TRIES):
            stack = AsyncExitStack()
            claiming = claim(
                bootstrap, OWN_GROUP, [resource], generation, client_id=driver.client_id, timeout_ms=CLAIM_MS_MAX
            )
            try:
                ownership = await stack.enter_async_context(claiming)
            except AlreadyOwned as refused:
                owner = None if refused.owner is None else read_client_id(refused.owner.client_id)
                if owner is not None and owner.run_id == driver.run_id:
                    return  # another process of this very run has it, in which Spark commits in turn with this one
                has_displaced = True
                if owner is not None:
                    if has_had_it:
                        raise NewerDriver(group.query_id, owner.host) from None
                    log.info("query %s is taken over from the driver on %s", group.query_id, owner.host)
                    displaced = owner
                generation = refused.generation
                continue
            if has_had_it and is_behind:  # another one came and went again
                await stack.aclose()
                raise NewerDriver(group.query_id, last_run.host or "another machine")
            if last.batch_id > group.batch_id and not has_displaced:  # who was displaced may just have gone on
                await stack.aclose()
                raise _older(group, last)
            await self._drop(bootstrap, resource)  # only now: one that was lost says that it has been had
            self._claims[bootstrap, resource] = _Claim(
                driver.run_id, ownership, stack, last_run.runs_before(driver.run_id), self._now_ms(), displaced
            )
            while len(self._claims) > CLAIMS_MAX:
                await self._drop(*next(iter(self._claims)))
            return
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"{resource} changes hands faster than it can be claimed")

    async def _drop(self, bootstrap: str, resource: str) -> None:
        dropped = self._claims.pop((bootstrap, resource), None)
        if dropped is not None:
            await dropped.stack.aclose()


def _older(group: Group, last: Last) -> OlderCheckpoint:
    return OlderCheckpoint(group, last.batch_id, read_run_name(last.run_id))


def _resource(group: Group) -> str:
    return f"query/{group.scope}/{group.query_id}"


async def _is_held(ownership: Ownership) -> bool:
    """A loss may be for a moment only: a controller moved."""
    try:
        ownership.check()
        return True
    except OwnershipLost:
        pass
    try:
        async with asyncio.timeout(REGAIN_S_MAX):
            await ownership.regained()
        return True
    except OwnershipLost:
        return False
    except TimeoutError:
        log.warning("the ownership of a query is lost for now: %s", ownership.reason)
        return True


def read_client_id(client_id: str) -> Driver | None:
    """Who owns a query, by the client.id of its connection; None if that was no driver."""
    kind, *parts = client_id.split("/")
    if kind != "headrace-spark" or len(parts) != 4 or not parts[2].isdigit():
        return None
    return Driver(parts[0], parts[1], int(parts[2]))
