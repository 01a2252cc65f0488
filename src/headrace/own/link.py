"""One connection for Own to one broker: what it holds there lives and dies with it."""

import asyncio
from collections.abc import Callable, Iterable

from headrace.errors import ErrorCode, KafkaError
from headrace.net.peer import Peer, PeerLost
from headrace.net.transport import Address
from headrace.own.questions import WAIT_MS, Claimer
from headrace.runtime import Clock
from headrace.wire.errors import ProtocolError, Unencodable
from headrace.wire.messages.inspection import InspectRequest
from headrace.wire.messages.own import OwnRequest, OwnResponse

SILENCE_MS_MAX = 2_900
"""An answer may come so much later than it was due. With WAIT_MS it is less than six seconds: a network that falls
silent is noticed by then."""

CONFIRM_MS_MAX = 5_000
"""A broker says within this time whether a grant has been confirmed."""

UNHEARD_MS_MAX = WAIT_MS + SILENCE_MS_MAX


class Link:
    """While nothing else is asked, one question waits at the broker: its answer tells what was dropped there, and the
    end of the connection that everything is lost. The broker answers a waiting question when the next one comes."""

    def __init__(
        self,
        node_id: int,
        peer: Peer,
        address: Address,
        claimer: Claimer,
        clock: Clock,
        on_lost: Callable[["Link", list[str], str], None],
    ) -> None:
        self.node_id = node_id
        self.address = address
        self.held: dict[str, int] = {}  # generations
        self.is_silent = False  # nobody closed it, and nobody answers
        self.heard_ms = clock.monotonic_ms()
        self._peer = peer
        self._claimer = claimer
        self._clock = clock
        self._on_lost = on_lost
        self._asking = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._keeping: asyncio.Task[None] | None = None

    @property
    def closed(self) -> bool:
        return self._peer.closed

    def hold(self, resource: str, generation: int) -> None:
        """It has been granted here."""
        self.held[resource] = generation
        if self._keeping is None:
            self._keeping = asyncio.ensure_future(self._keep())

    async def ask(self, request: OwnRequest) -> OwnResponse:
        """PeerLost, and the connection is gone; KafkaError when the broker refuses to be asked."""
        self._asking += 1
        self._idle.clear()
        try:
            timeout_ms = request.wait_ms + CONFIRM_MS_MAX + SILENCE_MS_MAX
            answer = await self._peer.request(request, OwnResponse, self._version(), timeout_ms)
            return self._read(answer)
        except TimeoutError as error:
            self.is_silent = True
            raise PeerLost(f"{self._peer.address} does not answer") from error
        except Unencodable as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        except ProtocolError as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
        finally:
            self._asking -= 1
            if not self._asking:
                self._idle.set()

    async def prove(self) -> None:
        """What is held now is held after this was asked. PeerLost if nothing can be said."""
        before = dict(self.held)
        try:
            self._compare(before, await self.ask(self._claimer.keep_alive(0)))
        except (PeerLost, KafkaError) as error:
            self.lose(str(error))
            raise PeerLost(str(error)) from error

    def fall_silent(self, for_ms: int) -> None:
        self.is_silent = True
        self.lose(f"{self._peer.address} has not been heard of for {for_ms} ms")

    def lose(self, reason: str) -> None:
        """The connection is of no use any more."""
        self._peer.close(reason)
        self._drop(list(self.held), reason)

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        self._peer.close()

    async def _keep(self) -> None:
        try:
            while True:
                await self._idle.wait()
                before = dict(self.held)
                question = self._claimer.keep_alive(WAIT_MS)
                answer = await self._peer.request(question, OwnResponse, self._version(), UNHEARD_MS_MAX)
                self._compare(before, self._read(answer))
        except (PeerLost, ProtocolError, KafkaError) as error:
            self.lose(str(error))
        except TimeoutError:
            self.fall_silent(UNHEARD_MS_MAX)

    def _version(self) -> int:
        """A broker may hide from fragile clients that it can be asked (`own.advertise`): then it is known to be one of
        ours by what else it speaks. ProtocolError for any other."""
        if not self._peer.speaks(OwnRequest) and self._peer.speaks(InspectRequest):
            return 0
        return self._peer.version_of(OwnRequest)

    def _read(self, answer: OwnResponse) -> OwnResponse:
        self.heard_ms = self._clock.monotonic_ms()
        if answer.error_code:
            is_off = answer.error_code == ErrorCode.POLICY_VIOLATION
            why = ": own.enable is false there, or a limit of own.max.* is reached" if is_off else ""
            text = f"{self._peer.address} does not serve group {self._claimer.group!r}{why}"
            raise KafkaError(answer.error_code, text)
        return answer

    def _compare(self, before: dict[str, int], answer: OwnResponse) -> None:
        there = {result.resource: result.generation for result in answer.resources if not result.error_code}
        gone = [
            resource
            for resource, generation in before.items()
            if self.held.get(resource) == generation and there.get(resource) != generation
        ]
        self._drop(gone, f"{self._peer.address} does not lead it any more")

    def _drop(self, resources: Iterable[str], reason: str) -> None:
        dropped = [resource for resource in resources if self.held.pop(resource, None) is not None]
        if dropped:
            self._on_lost(self, dropped, reason)
