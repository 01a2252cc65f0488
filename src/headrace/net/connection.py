"""One TCP connection of the Kafka protocol: frames in, ordered answers out, and never more of either than agreed."""

import asyncio
import logging
from collections.abc import Callable
from socket import SO_KEEPALIVE, SOL_SOCKET
from typing import cast

from headrace.model import Buffer
from headrace.net.framing import GROWTH, GROWTH_SCARCE, SCRATCH_BYTES, FrameReader
from headrace.net.hub import Hub
from headrace.net.limits import SHORT_ANSWER_BYTES, Limits
from headrace.net.output import Output
from headrace.net.reply import Reply
from headrace.net.slices import SLICE_BYTES
from headrace.net.slicing import Slicing
from headrace.wire.errors import ProtocolError

log = logging.getLogger(__name__)

SIP_BYTES = 4 << 10
"""Per read while memory for requests is scarce, or while this connection has to wait anyway."""

FRAMES_PER_TURN_MAX = 128
"""More frames than that, however small, wait for the next turn of the loop: others have a turn too."""


class Connection(asyncio.BufferedProtocol):
    """Hands every frame over synchronously, as a bytearray that the receiver owns.

    No frame is handed over while `_blocked`. Reading stops only when bytes have come that cannot be handed
    over, so that a client that goes away is noticed while its requests wait.
    """

    __slots__ = (
        "_asked_budget",
        "_blocked",
        "_budget",
        "_draining",
        "_first",
        "_frame_bytes",
        "_held_bytes",
        "_hub",
        "_in_flight",
        "_in_flight_bytes",
        "_in_pump",
        "_is_bulk",
        "_last",
        "_limits",
        "_on_closed",
        "_on_frame",
        "_on_opened",
        "_output",
        "_paid_bytes",
        "_paused",
        "_reader",
        "_resume_due",
        "_since_yield",
        "_slicing",
        "_stuck_bytes",
        "_transport",
        "_write_due",
        "_writing_paused",
        "claims",
        "client_id",
        "closed",
        "closing",
        "host",
        "is_kept",
        "peer",
        "principal",
        "quiet_ticks",
        "unfinished_ticks",
    )

    def __init__(
        self,
        hub: Hub,
        on_frame: Callable[["Connection", bytearray], None],
        on_opened: Callable[["Connection"], None] | None = None,
        on_closed: Callable[["Connection"], None] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`limits` are the hub's unless said."""
        self._hub = hub
        self._limits = limits or hub.limits
        self._budget = hub.budget
        self._on_frame = on_frame
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(hub.scratch, hub.buffers, self._limits.frame_bytes_max)
        self._first: Reply | None = None  # open replies, oldest first, chained by `next`
        self._last: Reply | None = None
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._frame_bytes = 0  # of the frame being handed over, until a reply is opened for it
        self._paid_bytes = 0  # taken from the budget for the frame that is to be handed over next
        self._held_bytes = 0  # kept between reads, as the budget knows it
        self._asked_budget = False
        self._output = Output()
        self._write_due = False  # the turn knows of us
        self._is_bulk = False  # the last answer was large
        self._slicing: Slicing | None = None
        self._in_pump = False
        self._blocked = False
        self._paused = False
        self._writing_paused = False
        self._draining = False
        self._resume_due = False
        self._since_yield = 0
        self._stuck_bytes = 0  # unsent answers, as the hub knows them
        self.closed = False
        self.closing = False
        self.quiet_ticks = 0  # of the listener's sweeper, since the last byte
        self.unfinished_ticks = 0  # since the last whole frame
        self.host = "?"
        self.peer = "?"
        self.principal = "User:ANONYMOUS"
        self.client_id: str | None = None
        """As its last request named it."""
        self.claims = False
        """By its client.id alone it wants to own what it uses."""
        self.is_kept = False
        """It is not closed for being silent."""

    # What the broker uses.

    def open_reply(self, alone: bool = False) -> Reply:
        """For the frame being handed over. `alone`: the next frame waits until this one is answered."""
        size, self._frame_bytes = self._frame_bytes, 0
        reply = Reply(self, size, alone)
        if self._last is None:
            self._first = reply
        else:
            self._last.next = reply
        self._last = reply
        self._in_flight += 1
        if alone or self._in_flight >= self._limits.requests_in_flight_max:
            self._blocked = True
        return reply

    def before_next_frame(self, call: Callable[[], None]) -> Callable[[], None]:
        """Calls once, before the next frame is handed over, unless what is returned was called before."""
        hand_over = self._on_frame

        def interrupted(connection: "Connection", frame: bytearray) -> None:
            self._on_frame = hand_over
            call()
            hand_over(connection, frame)

        def undo() -> None:
            if self._on_frame is interrupted:
                self._on_frame = hand_over

        self._on_frame = interrupted
        return undo

    def keep(self) -> None:
        """However long it is silent. That its client is gone is found out by the kernel, after hours."""
        if not self.is_kept and self._transport is not None:
            self.is_kept = True
            plain_socket = self._transport.get_extra_info("socket")
            if plain_socket is not None:
                plain_socket.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)

    def hold_back(self) -> None:
        """The frame after this one waits until this one is answered."""
        if self._last is not None and self._last.parts is None:
            self._last.alone = self._blocked = True

    def write(self, parts: list[Buffer]) -> None:
        """Outside of the order of replies: for the side that asks."""
        self._output.add(parts)
        self._write_later()

    def close(self, reason: str = "") -> None:
        """Now, after what is answered already. A reason is logged, though not once per client of a flood."""
        if self.closing:
            return
        if reason:
            self._hub.warn("closing", f"closing the connection of {self.peer}: {reason}")
        if self._output.unsent_bytes and self._transport is not None:
            self._output.give_to(self._transport)
        self.closing = self._blocked = True
        if self._transport is not None:
            self._transport.close()

    def close_when_answered(self) -> None:
        """Takes no further request; closes when those in flight are answered."""
        self._draining = self._blocked = True
        self._pause()
        if self._first is None:
            self.close()

    def abort(self) -> None:
        """Without waiting for a client that does not read."""
        self.closing = self._blocked = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def answer_bytes_max(self) -> int:
        """How long an answer may be that can as well be shorter, as that of a fetch can."""
        left = self._limits.all_unsent_bytes_max - self._hub.unsent_bytes
        # Less than what a connection may leave unsent is not counted there, so it is given to nobody.
        return left if left > self._limits.unsent_bytes_max else SHORT_ANSWER_BYTES

    def pace(self) -> None:
        """What is answered now is in no hurry: while others ask for something, they come first."""
        if self._transport is not None:
            self._in_slices(self._transport).is_paced = True

    @property
    def others_wait(self) -> bool:
        """Somebody may, for what is done now: small requests came on other connections, a moment ago."""
        return self._transport is not None and self._in_slices(self._transport).size.others_wait

    @property
    def idle(self) -> bool:
        """Nobody waits for an answer."""
        return self._first is None

    @property
    def mid_frame(self) -> bool:
        """A frame has begun, and we wait for its client to finish it."""
        return self._reader.mid_frame and not self._blocked

    # What replies and the budget use.

    def answered(self, reply: Reply) -> None:
        """Queues it, and those that only waited for it."""
        if reply is not self._first or self.closed:
            return
        while reply.parts is not None:
            self._output.add(reply.parts)
            self._in_flight -= 1
            if reply.next is None:
                self._first = self._last = None
                break
            self._first = reply = reply.next
        if not self._in_pump:
            self._write_later()
        elif self._output.unsent_bytes >= self._limits.unsent_bytes_max:
            self._blocked = True
        if self._blocked:
            self._unblock()

    def give_back(self, size: int) -> None:
        """A request's bytes are not needed any more."""
        if self.closed:
            return  # they went back when the connection was lost
        self._in_flight_bytes -= size
        self._budget.release(size)
        if self._blocked:
            self._unblock()

    def granted(self, size: int) -> None:
        self._asked_budget = False
        if self.closed:
            self._budget.release(size)
            return
        self._paid_bytes += size
        self._unblock()

    def flush(self) -> None:
        """Gives what is queued to the transport, in one piece if it is small."""
        self._write_due = False
        output, transport = self._output, self._transport
        if output.unsent_bytes and not self.closing and transport is not None:
            slicing = self._slicing
            if slicing is not None and slicing.is_active:
                slicing.flush()
            elif output.unsent_bytes > SLICE_BYTES and output.is_sliceable(transport):
                self._is_bulk = True
                self._in_slices(transport).flush()
            else:
                self._is_bulk = False
                output.give_to(transport)
                if self._writing_paused:
                    self._count_stuck(transport.get_write_buffer_size())
                if slicing is not None:
                    slicing.is_paced = False
                    slicing.size.sent()
        if self._draining and self._first is None:
            self.close()
        elif self._blocked:
            self._unblock()

    def _in_slices(self, transport: asyncio.Transport) -> Slicing:
        if self._slicing is None:
            bytes_max = self._limits.unsent_bytes_max
            self._slicing = Slicing(self._output, transport, self._hub.slices, bytes_max, self._held_in_slices)
        return self._slicing

    def _held_in_slices(self, size: int) -> None:
        self._count_stuck(size)
        if self._blocked:
            self._unblock()

    # What the loop uses.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.set_write_buffer_limits(high=self._limits.unsent_bytes_max)
        plain_socket = transport.get_extra_info("socket")
        if plain_socket is not None and transport.get_extra_info("sslcontext") is None:
            self._output.socket_fd = plain_socket.fileno()
        name = transport.get_extra_info("peername")
        if name:
            self.host = name[0]
            self.peer = f"{name[0]}:{name[1]}"
        if self._on_opened is not None:
            self._on_opened(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.closed = self.closing = self._blocked = True
        self._slicing = None
        self._output.socket_fd = -1
        self._output.clear()
        self._budget.leave(self)
        self._budget.release(self._paid_bytes + self._in_flight_bytes)
        self._budget.hold(-self._held_bytes)
        self._paid_bytes = self._in_flight_bytes = self._held_bytes = 0
        self._count_stuck(0)
        if self._on_closed is not None:
            self._on_closed(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._reader.buffer(SIP_BYTES if self._blocked or self._budget.scarce else SCRATCH_BYTES)

    def buffer_updated(self, nbytes: int) -> None:
        self.quiet_ticks = 0
        if not self._is_bulk:
            self._hub.slices.small_requests += 1
            if self._slicing is not None:
                self._slicing.size.own_requests += 1
        self._reader.received(nbytes)
        more = self._pump()
        self._since_yield += nbytes
        if more or self._since_yield >= self._hub.yield_bytes:
            self._since_yield = 0
            self._pause()
            self._resume_soon()

    def pause_writing(self) -> None:
        if self._slicing is None or not self._slicing.is_active:
            self._writing_paused = self._blocked = True

    def resume_writing(self) -> None:
        if self._slicing is not None and self._slicing.is_active:
            self._slicing.has_room()
            return
        self._writing_paused = False
        self._count_stuck(0)
        self._unblock()

    def _count_stuck(self, size: int) -> None:
        self._hub.unsent_bytes += size - self._stuck_bytes
        self._stuck_bytes = size

    def _pump(self) -> bool:
        """Hands over what is ready and allowed, and puts away the rest. True: there may be more for the next turn."""
        reader = self._reader
        room = FRAMES_PER_TURN_MAX
        self._in_pump = True
        try:
            while room and not self._blocked and (size := reader.size()) >= 0 and self._pay(size):
                self._hand_over(reader.take(), size)
                room -= 1
            if reader.mid_frame or self._held_bytes:
                self._put_away(reader)
        except ProtocolError as error:
            self.close(f"{error}")
        self._in_pump = False
        if self._blocked and reader.mid_frame:
            self._pause()
        if self._output.unsent_bytes and not self._write_due:
            self.flush()
        return not room

    def _hand_over(self, frame: bytearray, size: int) -> None:
        self.unfinished_ticks = 0
        self._frame_bytes = size
        self._in_flight_bytes += size
        if self._in_flight_bytes >= self._limits.request_bytes_in_flight_max:
            self._blocked = True
        try:
            self._on_frame(self, frame)
        except ProtocolError as error:
            self.close(f"{error}")
        except Exception:  # the whole broker runs in there: its bug costs this client its connection, nobody else's
            log.exception("closing the connection of %s: a request failed", self.peer)
            self.close()
        if self._frame_bytes:
            self.give_back(self._frame_bytes)
            self._frame_bytes = 0

    def _put_away(self, reader: FrameReader) -> None:
        """What cannot be handed over yet leaves the buffer that all connections share."""
        if not self._blocked and reader.lacks_room():
            self._make_room(reader)
        reader.keep()
        kept = reader.kept_bytes
        if kept != self._held_bytes:
            self._budget.hold(kept - self._held_bytes)
            self._held_bytes = kept

    def _make_room(self, reader: FrameReader) -> None:
        """Memory for a large frame. It is paid for as it is needed, and not by the length that a client announces."""
        budget, owned_bytes = self._budget, reader.room_bytes
        if self._paid_bytes <= owned_bytes:
            room_bytes = reader.next_room_bytes(GROWTH if budget.ample else GROWTH_SCARCE)
            take = budget.take_more if owned_bytes else budget.take
            if not take(room_bytes - owned_bytes, self):
                self._asked_budget = self._blocked = True
                return
            self._paid_bytes = room_bytes
        reader.make_room(self._paid_bytes)

    def _pay(self, size: int) -> bool:
        if self._paid_bytes:
            self._paid_bytes = 0
            self._budget.is_whole(self)
            return True
        if self._budget.take(size, self):
            return True
        self._asked_budget = self._blocked = True
        return False

    def _unblock(self) -> None:
        """Something that may have stood in the way is gone."""
        limits = self._limits
        if (
            self._asked_budget
            or self._writing_paused
            or self._draining
            or self.closing
            or self._in_flight >= limits.requests_in_flight_max
            or self._in_flight_bytes >= limits.request_bytes_in_flight_max
            or self._output.unsent_bytes >= limits.unsent_bytes_max
            or (self._last is not None and self._last.alone and self._last.parts is None)
        ):
            return
        self._blocked = False
        if not self._in_pump and (self._paused or self._reader.mid_frame):
            # Not at once: whoever answered is not prepared to be handed the next frame.
            self._resume_soon()

    def _resume_soon(self) -> None:
        if not self._resume_due:
            self._resume_due = True
            self._hub.loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._resume_due = False
        if self._blocked:
            return
        if self._pump():
            self._pause()
            self._resume_soon()
        elif self._paused and not self._blocked and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _pause(self) -> None:
        if not self._paused and not self.closing and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _write_later(self) -> None:
        if self._output.unsent_bytes >= self._limits.unsent_bytes_max:
            self._blocked = True
        if not self._write_due:
            self._write_due = True
            self._hub.turn.write(self)
