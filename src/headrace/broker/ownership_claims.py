"""Claims, resumes and standbys of one request: all decided against what is known before anything changes."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.broker import Broker
from headrace.broker.ownership_grants import Grants, Terms
from headrace.broker.ownership_places import Elsewhere, Place, granted, locate, may_claim, refused
from headrace.broker.requests import Request
from headrace.core.ownership import Entry, Identity, Refused, Tenure
from headrace.core.ownership_rules import RESET, Action, Decision, Op, decide, look
from headrace.errors import ErrorCode
from headrace.model import ZERO_UUID
from headrace.wire.messages.own import OwnRequest, OwnResource, OwnResponse, OwnResult

RESOURCE_CHARS_MAX = 1024
EXCLUSIVE_MAX = 3
SETTLE_S_MAX = 5.0
"""How long a claim waits for the store to say what an earlier one has written."""


class Asked(NamedTuple):
    """One resource of a request, and what becomes of it; a result where it is refused before it is looked at."""

    resource: str
    place: Place | None
    entry: Entry | None
    decision: Decision | None
    result: OwnResult | None


class Answering:
    """Collects the results of one request, in its order, and sends them when the last is known."""

    def __init__(self, request: Request[OwnRequest], group: str, count: int) -> None:
        self._request = request
        self._group = group
        self._results: list[OwnResult | None] = [None] * count
        self._left = count

    def tell(self, at: int, result: OwnResult) -> None:
        self._results[at] = result
        self._left -= 1
        if not self._left:
            results = [result for result in self._results if result is not None]
            self._request.reply(OwnResponse(group=self._group, resources=results))


class Claim:
    """A request of API 18200 that claims: at once, or as a standby once something is free."""

    __slots__ = (
        "_broker",
        "_end_s",
        "_entries",
        "_generations",
        "_grants",
        "_identity",
        "_look_again",
        "_op",
        "_settled",
        "_timer",
        "_undo",
        "body",
        "request",
    )

    def __init__(self, broker: Broker, grants: Grants, request: Request[OwnRequest]) -> None:
        self.request = request
        self.body = request.body
        self._broker = broker
        self._grants = grants
        self._op = Op(self.body.op)
        self._generations = {asked.resource: asked.generation for asked in self.body.resources}
        holder = "" if self.body.holder == ZERO_UUID else self.body.holder.hex()
        self._identity = Identity(request.principal, holder)
        self._end_s = 0.0
        self._entries: list[Entry] = []
        self._timer: asyncio.TimerHandle | None = None
        self._look_again: asyncio.TimerHandle | None = None
        self._undo: Callable[[], None] | None = None
        self._settled = False

    def start(self) -> None:
        doubtful = self._doubtful()
        if not doubtful:
            self._decide()
            return
        broker = self._broker
        waiting = broker.loop.call_later(SETTLE_S_MAX, self._after_settling)
        self._timer = waiting
        broker.ownership.keys.settle(doubtful, self._after_settling)

    def _doubtful(self) -> list[Entry]:
        found = []
        for asked in self.body.resources:
            place = locate(self._broker, asked.resource)
            if isinstance(place, Place):
                entry = self._broker.ownership.find(place.hosted, self.body.group, asked.resource)
                if entry is not None and entry.doubt is not None and entry.tenure is None:
                    found.append(entry)
        return found

    def _after_settling(self) -> None:
        if not self._settled:
            self._settled = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._decide()

    # Deciding.

    def _decide(self) -> None:
        if self.request.connection.closing:
            self.request.no_reply()
            return
        asked = self._look()
        if self._waits() and all(self._is_taken(one) for one in asked):
            self._stand_by(asked)
        else:
            self._carry_out(asked)

    def _look(self) -> list[Asked]:
        copies = Counter(asked.resource for asked in self.body.resources)
        return [self._look_at(asked, copies[asked.resource] > 1) for asked in self.body.resources]

    def _look_at(self, asked: OwnResource, is_copy: bool) -> Asked:
        broker, name, generation = self._broker, asked.resource, asked.generation
        if is_copy or not 0 < len(name) <= RESOURCE_CHARS_MAX or generation < 0:
            return self._refuse(name, ErrorCode.INVALID_REQUEST)
        if not 0 <= self.body.exclusive <= EXCLUSIVE_MAX or (self._op is Op.RESUME and not self._identity.holder):
            return self._refuse(name, ErrorCode.INVALID_REQUEST)
        place = locate(broker, name)
        if isinstance(place, Elsewhere):
            return Asked(name, None, None, None, OwnResult(resource=name, error_code=place.error, leader=place.leader))
        resets = self._op is Op.CLAIM and generation == RESET
        exclusive = 0 if self._op is Op.RESUME else self.body.exclusive
        error = may_claim(broker, self.request.principal, place, resets=resets, exclusive=exclusive)
        if error:
            return self._refuse(name, error)
        entry = broker.ownership.find(place.hosted, self.body.group, name)
        if entry is not None and entry.doubt is not None and entry.tenure is None:
            return self._refuse(name, ErrorCode.REQUEST_TIMED_OUT)
        known = look(entry, self.request.connection, broker.clock.monotonic_ms())
        decision = decide(self._op, generation, self._identity, known)
        if decision.action is Action.GRANT:
            error = self._rebinds(entry) or self._grants.hinders(place.hosted, entry, decision, self._retain_ms)
            if error:
                decision = Decision(Action.REFUSE, 0, error)
        return Asked(name, place, entry, decision, None)

    def _refuse(self, resource: str, error: ErrorCode) -> Asked:
        return Asked(resource, None, None, None, OwnResult(resource=resource, error_code=error))

    def _rebinds(self, entry: Entry | None) -> ErrorCode:
        """Nobody may bind the client.id of an owner that it displaces: sockets of the other would be let in again."""
        tenure = None if entry is None else entry.tenure
        client_id, members = self.body.bind_client_id, self._broker.ownership.book.members
        if tenure is None or client_id is None or self._identity.is_same(tenure.identity):
            return ErrorCode.NONE
        others = (members.get(peer) for peer in tenure.peers if peer is not self.request.connection)
        if any(member is not None and client_id in member.bound for member in others):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    @property
    def _retain_ms(self) -> int:
        config = self._broker.config
        asked_ms = self.body.retain_ms
        return min(
            config.own_generation_retention_ms if asked_ms < 0 else asked_ms, config.own_generation_retention_max_ms
        )

    # Carrying out.

    def _carry_out(self, asked: list[Asked]) -> None:
        """In one step: owners change, then the connections of those before are cut, then all is confirmed."""
        own = self._broker.ownership
        wins = [one for one in asked if one.decision is not None and one.decision.action is not Action.REFUSE]
        member = own.book.member(self.request.connection)
        member.group = self.body.group
        if wins and self.body.bind_client_id:
            own.book.bind(member, self.body.bind_client_id)
        victims, begun = [], []
        terms = Terms(self._identity, self._retain_ms, self.body.exclusive)
        for one in wins:
            assert one.place is not None and one.decision is not None
            if one.decision.action is Action.GRANT:
                entry = own.ensure(one.place.hosted, self.body.group, one.resource)
                victims += self._grants.swap(entry, one.place.hosted, one.decision, member, terms)
                begun.append(entry)
                own.metrics.resets += self._op is Op.CLAIM and self._generations[one.resource] == RESET
        own.sever(victims, member)
        answering = Answering(self.request, self.body.group, len(asked))
        for at, one in enumerate(asked):
            self._answer(answering, at, one)
        for entry in begun:
            if entry.tenure is not None:
                self._grants.confirm(entry)

    def _answer(self, answering: Answering, at: int, one: Asked) -> None:
        broker, name = self._broker, one.resource
        if one.result is not None or one.decision is None or one.place is None:
            answering.tell(at, one.result or OwnResult(resource=name, error_code=ErrorCode.INVALID_REQUEST))
            return
        if one.decision.action is Action.REFUSE:
            if not self._has_waited:
                self._note_refusal(one)
            answering.tell(at, refused(broker, name, one.decision.error, one.decision.generation))
            return
        entry = broker.ownership.find(one.place.hosted, self.body.group, name)
        tenure = None if entry is None else entry.tenure
        if tenure is None:  # it went with the very connection that claims
            answering.tell(at, refused(broker, name, ErrorCode.REQUEST_TIMED_OUT, one.decision.generation))
        elif tenure.is_confirmed:
            answering.tell(at, granted(broker, name, tenure))
        else:
            tenure.waiting.append(lambda error: answering.tell(at, self._outcome(name, tenure, error)))

    def _outcome(self, name: str, tenure: Tenure, error: ErrorCode) -> OwnResult:
        if not error:
            return granted(self._broker, name, tenure)
        return refused(self._broker, name, error, tenure.generation)

    def _note_refusal(self, one: Asked) -> None:
        self._broker.ownership.metrics.rejections += 1
        if one.entry is not None:
            one.entry.refused = Refused(
                client_id=self.request.connection.client_id or "",
                address=self.request.connection.peer,
                generation=self._generations[one.resource],
                wall_ms=self._broker.clock.wall_ms(),
            )

    # Standing by.

    @property
    def _has_waited(self) -> bool:
        """Whether it was one who waits its turn: that its time is over is no refusal, and it will ask again."""
        return self._end_s != 0.0

    def _waits(self) -> bool:
        if self._op is not Op.CLAIM_IF_UNOWNED or self.body.wait_ms <= 0:
            return False
        return not self._end_s or self._broker.loop.time() < self._end_s

    def _is_taken(self, one: Asked) -> bool:
        """Also what is free in the first moments of a leadership: its owner comes back first."""
        decision = one.decision
        if decision is None or one.place is None:
            return False
        if decision.action is Action.GRANT:
            return self._broker.ownership.is_young(one.place.hosted) > 0
        return decision.error is ErrorCode.ILLEGAL_GENERATION

    def _stand_by(self, asked: list[Asked]) -> None:
        broker, own = self._broker, self._broker.ownership
        if not self._end_s:
            self._end_s = broker.loop.time() + self.body.wait_ms / 1000
            self._timer = broker.loop.call_later(self.body.wait_ms / 1000, self.give_up)
            self._undo = self.request.connection.before_next_frame(self.give_up)
            own.book.member(self.request.connection).group = self.body.group
            own.metrics.standbys += 1
            self.request.forget_body()
        for one in asked:
            assert one.place is not None
            entry = own.ensure(one.place.hosted, self.body.group, one.resource)
            if self not in entry.standbys:
                entry.standbys[self] = None
                self._entries.append(entry)
        young_ms = max(own.is_young(one.place.hosted) for one in asked if one.place is not None)
        if young_ms and self._look_again is None:
            self._look_again = broker.loop.call_later(young_ms / 1000, self._grown_up)

    def _grown_up(self) -> None:
        self._look_again = None
        self.judge()

    def judge(self) -> None:
        """Something may be free. Those who came first are asked first."""
        if self.request.connection.closing:
            self.leave()
            return
        asked = self._look()
        if self._waits() and all(self._is_taken(one) for one in asked):
            self._stand_by(asked)
            return
        self.leave()
        self._carry_out(asked)

    def give_up(self) -> None:
        """Time is over, or the connection has something else to say."""
        self._end_s = -1.0
        asked = self._look()
        self.leave()
        # What is free now goes to those who still wait, or to the owner that comes back.
        self._carry_out([self._too_late(one) for one in asked])

    def _too_late(self, one: Asked) -> Asked:
        if one.decision is None or one.decision.action is not Action.GRANT:
            return one
        return one._replace(decision=Decision(Action.REFUSE, one.decision.generation - 1, ErrorCode.ILLEGAL_GENERATION))

    def leave(self) -> None:
        """It waits no longer, whether it is answered or its connection is gone."""
        for timer in (self._timer, self._look_again):
            if timer is not None:
                timer.cancel()
        self._timer = self._look_again = None
        if self._undo is not None:
            self._undo()
            self._undo = None
            self._broker.ownership.metrics.standbys -= 1
        entries, self._entries = self._entries, []
        for entry in entries:
            entry.standbys.pop(self, None)
            self._broker.ownership.changed(entry)
