"""One end of a simulated connection, with what asyncio promises of transports: order, backpressure, ends."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from headrace.model import Buffer
from headrace.sim.loop import DEAD, Process

if TYPE_CHECKING:
    from headrace.sim.network import SimNetwork

WINDOW_BYTES = 256 << 10
"""Sent and not read yet. More stays in the sender's buffer."""

SPLIT_ONE_IN = 16
"""So many times a piece arrives in two."""

END, RESET = b"", None
"""What follows the last byte."""


class SimTransport(asyncio.Transport):
    other: "SimTransport"

    def __init__(self, network: "SimNetwork", process: Process, host: str, port: int) -> None:
        super().__init__()
        self._network = network
        self._loop = network.loop
        self.process = process
        self.host = host
        self.port = port
        self._protocol: asyncio.BaseProtocol | None = None
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._in_flight_bytes = 0  # until the other side has read them
        self._stalled: list[bytes | None] = []  # sent into a cut link
        self._last_arrival_s = 0.0
        self._received: deque[bytes | None] = deque()
        self._read_due = False
        self._reading = True
        self._writing_paused = False
        self._high_bytes = 64 << 10
        self._low_bytes = 16 << 10
        self._closing = False
        self._lost = False
        self._end_sent = False

    # What protocols use.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "peername":
                return (self.other.host, self.other.port)
            case "sockname":
                return (self.host, self.port)
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = 64 << 10 if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._read_soon()

    def write(self, data: Buffer) -> None:
        if self._lost or self._closing or not data:
            return
        self._unsent.append(bytes(data))
        self._unsent_bytes += len(data)
        self._send()
        if self._unsent_bytes > self._high_bytes and not self._writing_paused and self._protocol is not None:
            self._writing_paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._reading = False
        self._finish()

    def abort(self) -> None:
        if self._lost:
            return
        self._closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._end(RESET)
        self._lose_soon(None)

    # What the network uses.

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self._read_soon()

    def broken(self) -> None:
        """A reset has come, or the network made it up."""
        if not self._lost and self.process.state != DEAD:
            self._closing = self._end_sent = True
            self._lose_soon(ConnectionResetError(104, "Connection reset by peer"))

    def end_of_process(self, is_told: bool) -> None:
        """The system closes what the dead process had open; what it was given before still leaves.

        Not `is_told`: the whole machine died, and what it had not sent yet is gone."""
        self._lost = True
        self._unsent.clear()
        if is_told:
            self._end(RESET if self._received else END)
        else:
            self._stalled.clear()
        self._forget()

    def send_again(self, delay_s: float) -> None:
        """The link has healed."""
        stalled, self._stalled = self._stalled, []
        for data in stalled:
            self._put(data, delay_s)
        if self._lost:
            self._forget()

    # How it works.

    def _send(self) -> None:
        while self._unsent and self._in_flight_bytes < WINDOW_BYTES:
            data = self._unsent.popleft()
            self._unsent_bytes -= len(data)
            self._in_flight_bytes += len(data)
            if len(data) > 1 and not self._network.random.randrange(SPLIT_ONE_IN):
                at = self._network.random.randrange(1, len(data))
                self._put(data[:at], 0)
                data = data[at:]
            self._put(data, 0)

    def _put(self, data: bytes | None, more_delay_s: float) -> None:
        """Onto the link, or on the pile of what is lost until it heals."""
        if self._stalled or self._network.is_cut(self.host, self.other.host):
            self._stalled.append(data)
            return
        arrival_s = max(self._last_arrival_s, self._loop.now_s + self._network.delay_s() + more_delay_s)
        self._last_arrival_s = arrival_s
        self._loop.at(arrival_s, self.other.process, self.other._arrive, data)

    def _arrive(self, data: bytes | None) -> None:
        if data is RESET:
            self.broken()
            return
        if self._lost:
            if data:
                self._end(RESET)  # nobody is here any more
            return
        self._loop.note(data)
        self._received.append(data)
        self._read()

    def _read_soon(self) -> None:
        if self._received and not self._read_due:
            self._read_due = True
            self._loop.soon(self.process, self._read_later)

    def _read_later(self) -> None:
        self._read_due = False
        self._read()

    def _read(self) -> None:
        """One piece in a turn, as loops do."""
        protocol = self._protocol
        if not self._reading or self._closing or protocol is None or not self._received:
            return
        data = self._received.popleft()
        if data == END:
            if not isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol) or not protocol.eof_received():
                self.close()
            return
        assert data is not None
        if isinstance(protocol, asyncio.BufferedProtocol):
            room = memoryview(protocol.get_buffer(len(data)))
            count = min(len(data), len(room))
            room[:count] = data[:count]
            if count < len(data):
                self._received.appendleft(data[count:])
            protocol.buffer_updated(count)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            count = len(data)
            protocol.data_received(data)
        # The other side learns of it with the next packets; nothing here depends on when.
        self.other._taken(count)
        self._read_soon()

    def _taken(self, count: int) -> None:
        self._in_flight_bytes -= count
        if self._unsent and not self._lost:
            self._loop.soon(self.process, self._go_on)

    def _go_on(self) -> None:
        if self._lost:
            return
        self._send()
        if self._closing:
            self._finish()
        elif self._writing_paused and self._unsent_bytes <= self._low_bytes and self._protocol is not None:
            self._writing_paused = False
            self._protocol.resume_writing()

    def _finish(self) -> None:
        if not self._unsent:
            self._end(END)
            self._lose_soon(None)

    def _end(self, kind: bytes | None) -> None:
        if not self._end_sent:
            self._end_sent = True
            self._put(kind, 0)

    def _lose_soon(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._forget()
            self._loop.soon(self.process, self._tell_lost, error)

    def _forget(self) -> None:
        if not self._stalled:
            self._network.gone(self)

    def _tell_lost(self, error: Exception | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)
