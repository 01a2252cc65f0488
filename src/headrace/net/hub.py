"""What the connections of one node share: the read buffer, the end of the turn, the memory for requests."""

import asyncio
import logging

from headrace.net.buffers import FrameBuffers
from headrace.net.framing import READ_BYTES_MAX, SCRATCH_BYTES
from headrace.net.limits import Limits, LogGate, RequestBudget
from headrace.net.slices import Slices
from headrace.net.turn import Turn

log = logging.getLogger(__name__)


class Hub:
    """One per node and loop, made by the composition root."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, request_bytes_max: int = 0) -> None:
        """`request_bytes_max` is queued.max.request.bytes: zero or less means no bound."""
        self.loop = loop
        self.limits = limits
        self.budget = RequestBudget(request_bytes_max, loop.call_soon)
        self.turn = Turn(loop.call_soon)
        self.slices = Slices(loop)
        self.buffers = FrameBuffers()
        self.unsent_bytes = 0  # of connections whose clients do not take their answers
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        # libuv reads a busy socket again and again before it looks at the next one.
        self.yield_bytes = READ_BYTES_MAX if type(loop).__module__.startswith("uvloop") else 2**63
        self._gate = LogGate(loop.time)

    def warn(self, kind: str, text: str) -> None:
        """One line per kind and ten seconds. Kinds are our own words, never the client's."""
        swallowed = self._gate.admit(kind)
        if swallowed is not None:
            more = f" ({swallowed} more like this before)" if swallowed else ""
            log.warning("%s%s", text, more)
