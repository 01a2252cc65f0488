"""Requests of API 18200: what is refused as a whole, keep-alives, releases, descriptions. Claims are elsewhere."""

import asyncio
from collections import Counter
from collections.abc import Callable

from headrace.broker import ownership_inspection
from headrace.broker.broker import Broker
from headrace.broker.ownership_claims import Answering, Claim
from headrace.broker.ownership_grants import Grants
from headrace.broker.ownership_keys import Written
from headrace.broker.ownership_places import Elsewhere, granted, group_resource, locate, partition_in
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.ownership import Entry, Member, Tenure
from headrace.core.ownership_rules import Op
from headrace.errors import ErrorCode
from headrace.net.connection import Connection
from headrace.wire.messages.own import OwnOwner, OwnRequest, OwnResource, OwnResponse, OwnResult

GROUP_CHARS_MAX = 249
RELEASE_S_MAX = 5.0
"""How long a release waits for the store."""


class OwnRequests:
    """One per node: knows who waits."""

    def __init__(self, broker: Broker, grants: Grants) -> None:
        self._broker = broker
        self._grants = grants
        self._waiting: dict[Connection, Callable[[], None]] = {}
        """How to forget the request that waits; a connection has at most one, since the next one ends it."""

    def handle(self, request: Request[OwnRequest]) -> None:
        body = request.body
        error = self._refusal(request)
        if error:
            request.reply(OwnResponse(error_code=error, group=body.group, resources=[]))
            return
        op = Op(body.op)
        if op is Op.DESCRIBE:
            self._describe(request)
        elif not body.resources:
            self._keep_alive(request)
        elif op is Op.RELEASE:
            self._release(request)
        else:
            claim = Claim(self._broker, self._grants, request)
            if op is Op.CLAIM_IF_UNOWNED and body.wait_ms > 0:
                self._waiting[request.connection] = claim.leave
            claim.start()

    def _refusal(self, request: Request[OwnRequest]) -> ErrorCode:
        broker, body = self._broker, request.body
        config, own = broker.config, broker.ownership
        if not config.own_enable:
            return ErrorCode.POLICY_VIOLATION
        if not 0 <= body.op <= max(Op):
            return ErrorCode.INVALID_REQUEST
        if not 0 < len(body.group) <= GROUP_CHARS_MAX:
            return ErrorCode.INVALID_GROUP_ID
        operation = Operation.DESCRIBE if body.op == Op.DESCRIBE else Operation.READ
        if not broker.is_allowed(request.principal, operation, group_resource(body.group)):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if len(body.resources) > config.own_max_resources_per_connection:
            return ErrorCode.POLICY_VIOLATION
        if body.op == Op.DESCRIBE:
            return ErrorCode.NONE
        member = own.book.members.get(request.connection)
        if member is not None and member.group not in (None, body.group):
            return ErrorCode.INVALID_GROUP_ID
        if not body.resources:
            return ErrorCode.NONE if body.op == Op.CLAIM else ErrorCode.INVALID_REQUEST
        is_full = body.op != Op.RELEASE and self._is_full(body, member)
        return ErrorCode.POLICY_VIOLATION if is_full else ErrorCode.NONE

    def _is_full(self, body: OwnRequest, member: Member | None) -> bool:
        """What the connection has already, and what has an owner already, adds nothing."""
        config, owned = self._broker.config, self._broker.ownership.metrics.owned
        held = () if member is None else member.entries
        names = {asked.resource for asked in body.resources}
        if len(held) + len(names) > config.own_max_resources_per_connection:
            mine = {entry.resource for entry in held}
            if len(mine | names) > config.own_max_resources_per_connection:
                return True
        if owned + len(names) <= config.own_max_entries:
            return False
        return owned + sum(not self._has_owner(body.group, name) for name in names) > config.own_max_entries

    def _has_owner(self, group: str, resource: str) -> bool:
        place = locate(self._broker, resource)
        if isinstance(place, Elsewhere):
            return True  # not here, at least: it is refused anyway
        entry = self._broker.ownership.find(place.hosted, group, resource)
        return entry is not None and entry.tenure is not None

    def connection_closed(self, connection: Connection) -> None:
        forget = self._waiting.pop(connection, None)
        if forget is not None:
            forget()

    def unowned(self, entry: Entry) -> None:
        """Standbys are judged when everything else of this step is done, in the order in which they came."""
        self._broker.loop.call_soon(self._judge, entry)

    @staticmethod
    def _judge(entry: Entry) -> None:
        for standby in list(entry.standbys):
            assert isinstance(standby, Claim)
            if standby in entry.standbys:
                standby.judge()

    # Keep-alive.

    def _keep_alive(self, request: Request[OwnRequest]) -> None:
        member = self._broker.ownership.book.member(request.connection)
        member.group = request.body.group
        if request.body.wait_ms <= 0 or member.has_lost:
            self._tell_holdings(request, member)
        else:
            self._wait_for_loss(request, member)

    def _wait_for_loss(self, request: Request[OwnRequest], member: Member) -> None:
        def answer() -> None:
            forget()
            self._tell_holdings(request, member)

        def forget() -> None:
            timer.cancel()
            undo()
            member.keep_alive = None
            if self._waiting.get(request.connection) is forget:
                del self._waiting[request.connection]

        timer: asyncio.TimerHandle = self._broker.loop.call_later(request.body.wait_ms / 1000, answer)
        undo = request.connection.before_next_frame(answer)
        member.keep_alive = answer
        self._waiting[request.connection] = forget
        request.forget_body()

    def _tell_holdings(self, request: Request[OwnRequest], member: Member) -> None:
        member.has_lost = False
        held = [(entry, entry.tenure) for entry in member.entries if entry.tenure is not None]
        results = [granted(self._broker, entry.resource, tenure) for entry, tenure in held if tenure.is_confirmed]
        request.reply(OwnResponse(group=member.group or "", resources=results))

    def answer_all(self) -> None:
        """The node stops: nobody shall wait for it."""
        for member in list(self._broker.ownership.book.members.values()):
            if member.keep_alive is not None:
                member.keep_alive()
        for entry in list(ownership_inspection.entries(self._broker)):
            for standby in list(entry.standbys):
                assert isinstance(standby, Claim)
                standby.give_up()

    # Release.

    def _release(self, request: Request[OwnRequest]) -> None:
        asked = request.body.resources
        answering = Answering(request, request.body.group, len(asked))
        member = self._broker.ownership.book.member(request.connection)
        member.group = request.body.group
        copies = Counter(one.resource for one in asked)
        held = {entry.resource: entry for entry in member.entries}
        for at, one in enumerate(asked):
            if copies[one.resource] > 1 or not one.resource or one.generation < 0:
                answering.tell(at, OwnResult(resource=one.resource, error_code=ErrorCode.INVALID_REQUEST))
            else:
                self._release_one(answering, at, one, held.get(one.resource), request.body.group)

    def _release_one(self, answering: Answering, at: int, one: OwnResource, entry: Entry | None, group: str) -> None:
        def tell(error: ErrorCode, generation: int = 0) -> None:
            answering.tell(at, OwnResult(resource=one.resource, generation=generation, error_code=error))

        tenure = None if entry is None else entry.tenure
        if entry is None or tenure is None or tenure.is_implied:
            tell(ErrorCode.ILLEGAL_GENERATION, self._current(one.resource, group))
        elif one.generation not in (0, tenure.generation):
            tell(ErrorCode.ILLEGAL_GENERATION, tenure.generation)
        elif tenure.record is None or not tenure.record.exclusive:
            self._end(entry, tenure, tell)
        else:
            self._open_up(entry, tenure, tell)

    def _current(self, resource: str, group: str) -> int:
        place = locate(self._broker, resource)
        entry = None if isinstance(place, Elsewhere) else self._broker.ownership.find(place.hosted, group, resource)
        return 0 if entry is None else self._generation(entry)

    def _generation(self, entry: Entry) -> int:
        record = entry.retained(self._broker.clock.monotonic_ms())
        return entry.tenure.generation if entry.tenure is not None else 0 if record is None else record.generation

    def _end(self, entry: Entry, tenure: Tenure, tell: Callable[[ErrorCode, int], None]) -> None:
        generation = tenure.generation
        if entry.tenure is tenure:
            self._broker.ownership.drop(entry, ErrorCode.ILLEGAL_GENERATION)
        tell(ErrorCode.NONE, generation)

    def _open_up(self, entry: Entry, tenure: Tenure, tell: Callable[[ErrorCode, int], None]) -> None:
        """Others may use the partition at once: first the store forgets that they may not."""
        assert tenure.record is not None
        opened = tenure.record.open_to_all()
        is_told = False

        def written(outcome: Written) -> None:
            nonlocal is_told
            if is_told:
                return
            is_told = True
            timer.cancel()
            if outcome is not Written.DONE or entry.tenure is not tenure:
                tell(ErrorCode.REQUEST_TIMED_OUT, tenure.generation)
                return
            tenure.record, tenure.exclusive = opened, 0
            self._end(entry, tenure, tell)

        timer = self._broker.loop.call_later(RELEASE_S_MAX, written, Written.UNKNOWN)
        self._broker.ownership.keys.put(entry, opened, written)

    # Describing.

    def _describe(self, request: Request[OwnRequest]) -> None:
        broker, group = self._broker, request.body.group
        if request.body.resources:
            results = [self._describe_one(request, asked.resource) for asked in request.body.resources]
        else:
            entries = [entry for entry in ownership_inspection.entries(broker) if entry.group == group]
            allowed = [entry for entry in entries if self._may_describe(request.principal, entry.resource)]
            told = [self._described(entry.resource, entry) for entry in allowed]
            results = [result for result in told if result.generation]
        request.reply(OwnResponse(group=group, resources=results))

    def _may_describe(self, principal: str, resource: str) -> bool:
        named = partition_in(self._broker, resource)
        return named is None or self._broker.allowed(principal, Operation.DESCRIBE, named[0])

    def _describe_one(self, request: Request[OwnRequest], resource: str) -> OwnResult:
        if not resource:
            return OwnResult(resource=resource, error_code=ErrorCode.INVALID_REQUEST)
        if not self._may_describe(request.principal, resource):
            return OwnResult(resource=resource, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        place = locate(self._broker, resource)
        if isinstance(place, Elsewhere):
            return OwnResult(resource=resource, error_code=place.error, leader=place.leader)
        entry = self._broker.ownership.find(place.hosted, request.body.group, resource)
        return OwnResult(resource=resource) if entry is None else self._described(resource, entry)

    def _described(self, resource: str, entry: Entry) -> OwnResult:
        result, tenure = OwnResult(resource=resource, generation=self._generation(entry)), entry.tenure
        if tenure is not None:
            peer = next(iter(tenure.peers))
            since_ms = self._broker.clock.monotonic_ms() - tenure.granted_ms
            result = granted(self._broker, resource, tenure)
            result.owner = OwnOwner(client_id=peer.client_id or "", address=peer.peer, since_ms=since_ms)
        return result
