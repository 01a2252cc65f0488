"""One connection that has much to send: its slices, and when the next one leaves."""

import asyncio
from collections.abc import Callable

from headrace.net.output import Output
from headrace.net.slices import Slices, SliceSize


class Slicing:
    """`held` is told before the first slice, and after every one, how much memory its unsent bytes take."""

    __slots__ = (
        "_awaits_room",
        "_bytes_max",
        "_held",
        "_is_due",
        "_output",
        "_slices",
        "_transport",
        "is_active",
        "is_paced",
        "size",
    )

    def __init__(
        self,
        output: Output,
        transport: asyncio.Transport,
        slices: Slices,
        bytes_max: int,
        held: Callable[[int], None],
    ) -> None:
        self._output = output
        self._transport = transport
        self._slices = slices
        self._bytes_max = bytes_max
        self._held = held
        self._is_due = False
        self._awaits_room = False
        self.size = SliceSize(slices)
        self.is_active = False
        """Of what is queued, or was last, some has been sent, or is in the transport."""
        self.is_paced = False
        """It is in no hurry."""

    def flush(self) -> None:
        """There is more to send."""
        self.is_active = True
        if self.is_paced:
            self._held(self._output.held_bytes + self._transport.get_write_buffer_size())
            if not self._awaits_room:
                self._later()
        elif not self._is_due:
            self.send_slice()

    def has_room(self) -> None:
        """What was sent last has left."""
        if self.is_paced and self._output.unsent_bytes:
            self._awaits_room = False
            self._held(self._output.held_bytes + self._transport.get_write_buffer_size())
            self._later()
        else:
            self.send_slice()

    def send_slice(self) -> None:
        """Called in turn with others that have much to send, and when there is room again for what was sent last."""
        self._is_due = self._awaits_room = False
        transport, output = self._transport, self._output
        if transport.is_closing() or not self.is_active:
            return
        if output.unsent_bytes:
            has_room = output.give_slice(transport, self.size.next(self._bytes_max, is_paced=self.is_paced))
            if transport.is_closing():
                return
            if not has_room:
                self._awaits_room = True
                transport.set_write_buffer_limits(high=0)  # so that it says when it has nothing left
            elif output.unsent_bytes:
                self._later()
        held_bytes = output.held_bytes + transport.get_write_buffer_size()
        if not held_bytes:
            self.is_active = self.is_paced = False
            transport.set_write_buffer_limits(high=self._bytes_max)
        self._held(held_bytes)

    def _later(self) -> None:
        if self._is_due:
            return
        self._is_due = True
        if self.is_paced and self.size.others_wait and self.size.others_are_busy:
            self._slices.after_pause(self, self._output.unsent_bytes)
        else:
            self._slices.later(self)
