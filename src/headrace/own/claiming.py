"""The first grant of each resource: at once, in turn, or by taking it over."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from headrace.client.errors import TimedOut
from headrace.errors import ErrorCode, KafkaError
from headrace.net.peer import PeerLost
from headrace.own.errors import AlreadyOwned
from headrace.own.holdings import ELSEWHERE, NOT_YET, Holdings
from headrace.own.questions import WAIT_MS, describe, owner_of
from headrace.wire.messages.own import OwnRequest, OwnResult

FIRST_SECOND_MS = 1_500
"""In the first second of a leadership a broker grants what is unowned only to those who wait: an owner that comes back
shall be first."""

Ask = Callable[[list[str]], OwnRequest]


class BeginAgain(Exception):
    """Something that was granted is lost for good while others are still waited for."""


class Claiming:
    """Asks until each resource is granted, or refused for good."""

    def __init__(self, holdings: Holdings, timeout_ms: int) -> None:
        self._holdings = holdings
        self._places = holdings.places
        self._claimer = holdings.claimer
        self._clock = holdings.outside.clock
        self._timeout_ms = timeout_ms
        self._numbers: dict[str, int] = {}  # to present
        self._wait_ms = 0
        self._why = "no broker leads it"

    async def take_over(self, numbers: Mapping[str, int]) -> None:
        """AlreadyOwned when one of them does not displace the owner."""
        self._numbers = dict(numbers)
        await self._until_granted(numbers, lambda names: self._claimer.claim({n: self._numbers[n] for n in names}))

    async def take_unowned(self, resources: Iterable[str]) -> None:
        """AlreadyOwned when somebody has one of them."""
        await self._until_granted(resources, lambda names: self._claimer.claim_if_unowned(names, self._wait_ms))

    async def take_turns(self, resources: Iterable[str]) -> None:
        """One after another in the order of their names: whoever waits in the same order blocks nobody for ever."""
        failures = 0
        for resource in sorted(resources):
            while resource not in self._holdings.generations:  # what is granted and lost is resumed meanwhile
                if self._holdings.gone.is_set():
                    raise BeginAgain
                if failures:
                    await self._pause(failures)
                failures = 0 if await self._wait_once(resource) else failures + 1

    async def _wait_once(self, resource: str) -> bool:
        """One slice of waiting; False when something is amiss, so that it is better to pause."""
        node_id = self._places.of(resource)
        try:
            if node_id is None:
                raise PeerLost(f"{resource} has no leader")
            question = self._claimer.claim_if_unowned([resource], WAIT_MS)
            result = (await self._holdings.ask(node_id, question)).get(resource)
        except PeerLost:
            return False
        if result is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {node_id} said nothing of {resource}")
        code = KafkaError(result.error_code).code
        if code in ELSEWHERE:
            return self._places.hint(resource, result.leader)
        if code in NOT_YET:
            return False
        if code not in (ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION):
            raise self._cannot_be_claimed(resource, code)
        return True

    async def _until_granted(self, resources: Iterable[str], question: Ask) -> None:
        wanted = sorted(resources)
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        failures = 0
        while missing := [name for name in wanted if name not in self._holdings.generations]:
            if self._holdings.gone.is_set():
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"lost while it was claimed: {self._holdings.reason}")
            if failures:
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise TimedOut(f"{missing[0]} was not granted in {self._timeout_ms} ms: {self._why}")
                await self._pause(failures)
            groups = self._holdings.by_place(missing)
            moved = [await self._claim_at(node_id, names, question) for node_id, names in groups.items()]
            failures = 0 if any(moved) else failures + 1

    async def _claim_at(self, node_id: int, names: list[str], question: Ask) -> bool:
        """Whether it is worth to go on at once."""
        try:
            results = await self._holdings.ask(node_id, question(names))
        except PeerLost as error:
            self._why = str(error)
            return False
        moved = False
        for name, result in results.items():
            code = KafkaError(result.error_code).code
            if code in ELSEWHERE:
                moved |= self._places.hint(name, result.leader)
                self._why = f"broker {node_id} does not lead it"
            elif code in NOT_YET:
                self._not_confirmed(name, result)
            elif code == ErrorCode.ILLEGAL_GENERATION:
                try:
                    moved |= await self._refused(node_id, result)
                except PeerLost as error:  # who has it can be asked another time
                    self._why = str(error)
            elif code is not ErrorCode.NONE:
                raise self._cannot_be_claimed(name, code)
        return moved

    def _cannot_be_claimed(self, name: str, code: ErrorCode) -> KafkaError:
        why = ""
        if code is ErrorCode.INVALID_REQUEST:
            why = ": it names no partition, and only those can be owned exclusively" if self._claimer.exclusive else ""
        return KafkaError(code, f"{name!r} cannot be claimed{why}")

    def _not_confirmed(self, name: str, result: OwnResult) -> None:
        """The number that our own claim has used up is ours to present again: nobody else was granted it."""
        self._why = f"the grant is not confirmed ({KafkaError(result.error_code).code.name})"
        if result.error_code == ErrorCode.REQUEST_TIMED_OUT and result.generation and name in self._numbers:
            self._numbers[name] = result.generation

    async def _refused(self, node_id: int, result: OwnResult) -> bool:
        """Raises, unless nobody has it: then it is a leadership that has just begun, and worth a moment's patience."""
        name = result.resource
        asked = self._numbers.get(name)
        owner = owner_of(result)
        if owner is None:
            seen = (await self._holdings.look(node_id, describe(self._claimer.group, [name]))).get(name)
            owner = None if seen is None else owner_of(seen)
        if owner is None and asked is None and not self._wait_ms:
            self._wait_ms = FIRST_SECOND_MS
            return True
        raise AlreadyOwned(self._claimer.group, name, result.generation, owner, asked)

    async def _pause(self, failures: int) -> None:
        await asyncio.sleep(self._holdings.outside.backoff_ms(failures) / 1000)
        try:
            await self._places.learn_once()
        except KafkaError as error:
            self._why = error.message
