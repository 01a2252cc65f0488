"""One driver per checkpoint: the newest one, and never a copy of a checkpoint taken for the original."""

import socket

from headrace.client.commit_group import CommitGroups
from headrace.spark.committing import keep_place
from headrace.spark.door import Door, door
from headrace.spark.driver_claims import Driver, DriverClaims
from headrace.spark.kept import groups_of, offers_groups
from headrace.spark.run_name import host_name
from headrace.spark.scope import Scope, check_place
from headrace.spark.task import Group


class Guard:
    """Asks the brokers before each batch. Where they are no nodes of Headrace, the table alone decides."""

    def __init__(self, bootstrap: str, scope: Scope, app_start_ms: int) -> None:
        self._bootstrap = bootstrap
        self._scope = scope
        self._app_start_ms = app_start_ms
        self._at: Door = door()
        self._claims: DriverClaims = self._at.call(DriverClaims)
        self._run_id: str | None = None

    def check(self, query_id: str, run_id: str, batch_id: int) -> None:
        """NewerDriver, MovedCheckpoint: this driver is to stop."""
        if not offers_groups(self._at, self._bootstrap):
            return
        # A query that is started again in this process is the same driver's, and keeps what that has claimed.
        self._run_id = self._run_id or run_id
        group = Group(self._scope.name, query_id, batch_id, self._run_id)
        driver = Driver(host_name(socket.gethostname()), self._run_id, self._app_start_ms)
        self._at.run(self._check(groups_of(self._at, self._bootstrap), group, driver))

    async def _check(self, groups: CommitGroups, group: Group, driver: Driver) -> None:
        if await self._claims.holds(self._bootstrap, group, driver):
            if self._claims.is_place_due(self._bootstrap, group):
                await keep_place(groups, self._scope, group.query_id)
            return
        await check_place(groups, self._scope, group.query_id)
        last = await groups.last(group.scope, group.query_id)
        await self._claims.take(self._bootstrap, group, driver, last)

    def close(self) -> None:
        self._at.run(self._claims.close())
