"""An event loop on virtual time: a minute of a cluster passes as fast as its code runs, and the same way every time.

Every handle belongs to a process of the simulated world, by the context that it runs in. Handles of a paused process
are kept back, those of a dead one are dropped, and timers run by the clock of the machine that the process is on.
"""

import asyncio
import heapq
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast
from zlib import crc32

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

HANDLES_PER_INSTANT_MAX = 100_000
"""More than that without time going on is an endless loop."""

DIGEST_STEP, DIGEST_MASK = 1_000_003, 0xFFFFFFFF

RUNNING, PAUSED, DEAD = range(3)


class Stuck(Exception):
    """The simulated code does not come to an end, or waits for what never happens."""


class MachineClock:
    """The clock of one machine: it may be set and may run fast or slow. It is handed to the processes on it."""

    def __init__(self, loop: "SimLoop", wall_ms: int, name: str = "machine") -> None:
        self._loop = loop
        self._since_s = loop.now_s  # the readings below are of this moment
        self._monotonic_s = 1_000.0
        self._wall_s = wall_ms / 1000
        self._boots = 1
        self._name = name
        self.rate = 1.0

    def boot(self) -> None:
        """The machine starts anew: what counted from its start counts from zero."""
        self._boots += 1
        self._wall_s += self._passed_s()
        self._monotonic_s = 0.0
        self._since_s = self._loop.now_s

    def set_rate(self, rate: float) -> None:
        """At 0 it stands still: whoever reads it sees no time pass, while timers run as at 1."""
        if rate < 0:
            raise ValueError(f"a clock does not run backwards, at a rate of {rate}")
        passed_s = self._passed_s()
        self._monotonic_s += passed_s
        self._wall_s += passed_s
        self._since_s = self._loop.now_s
        self.rate = rate

    def jump(self, by_ms: int) -> None:
        """Somebody sets the date. Ages and time-outs do not notice."""
        self._wall_s += by_ms / 1000

    def monotonic_ms(self) -> int:
        return int((self._monotonic_s + self._passed_s()) * 1000)

    def boot_ms(self) -> int:
        return self.monotonic_ms()

    def boot_id(self) -> str:
        return f"{self._name}-{self._boots}"

    def wall_ms(self) -> int:
        return int((self._wall_s + self._passed_s()) * 1000)

    def _passed_s(self) -> float:
        return (self._loop.now_s - self._since_s) * self.rate


class Process:
    """Whatever dies or pauses as a whole. A start after a death is another process."""

    __slots__ = ("clock", "context", "held", "name", "number", "on_death", "state")

    def __init__(self, loop: "SimLoop", name: str, clock: MachineClock | None = None) -> None:
        self.name = name
        self.number = loop.next_process_number()
        self.clock = clock
        self.state = RUNNING
        self.held: list[SimHandle] = []
        self.on_death: list[Callable[[], None]] = []
        self.context = copy_context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"<{self.name} {('running', 'paused', 'dead')[self.state]}>"


CURRENT: ContextVar[Process] = ContextVar("headrace_sim_process")


class SimHandle(asyncio.TimerHandle):
    __slots__ = ("process",)

    def __init__(  # asyncio's own does more than is needed for each of a million handles
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context, process: Process
    ) -> None:
        self._when = when
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self.process = process

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()

    def cancelled(self) -> bool:
        return self._cancelled


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.handles_run = 0
        self.digest = 0
        """Of everything that happened: equal for two runs that went the same way."""
        self.failures: list[str] = []
        """Exceptions that nobody handled."""
        self._due: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._timer_number = 0
        self._processes = 0
        self._over = False
        self._graves: set[asyncio.Task[Any]] = set()
        self.outside = Process(self, "outside")

    # The simulated world.

    def next_process_number(self) -> int:
        self._processes += 1
        return self._processes

    def note(self, data: bytes) -> None:
        """Something that two equal runs have in common."""
        self.digest = crc32(data, self.digest)

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Runs it as that process."""
        return process.context.copy().run(self.create_task, work)

    def at(self, when_s: float, process: Process, callback: Callable[..., object], *args: object) -> SimHandle:
        """True time, whatever the clock of its machine says: for networks and disks."""
        handle = SimHandle(max(when_s, self.now_s), callback, args, process.context, process)
        self._timer_number += 1
        heapq.heappush(self._timers, (handle._when, self._timer_number, handle))
        return handle

    def soon(self, process: Process, callback: Callable[..., object], *args: object) -> SimHandle:
        handle = SimHandle(self.now_s, callback, args, process.context, process)
        self._due.append(handle)
        return handle

    def pause(self, process: Process) -> None:
        if process.state == RUNNING:
            process.state = PAUSED

    def resume(self, process: Process) -> None:
        if process.state == PAUSED:
            process.state = RUNNING
            held, process.held = process.held, []
            self._due.extend(held)

    def kill(self, process: Process) -> None:
        """It does nothing any more, not even what it wanted to do last."""
        if process.state == DEAD:
            return
        process.state = DEAD
        process.held.clear()
        # A coroutine that is collected runs its `finally` clauses wherever the collector happens to run.
        self._graves |= asyncio.all_tasks(self)
        for tell in process.on_death:
            tell()

    # What runs.

    def run(self, main: Coroutine[Any, Any, T], until_s: float = float("inf")) -> T:
        """Until `main`, which belongs to no process, is done. Stuck when virtual time is over before."""
        task = self.spawn(self.outside, main)
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            self._run_due()
            while not task.done():
                self._go_on(until_s)
                self._run_due()
        finally:
            asyncio._set_running_loop(before)
        return task.result()

    def _run_due(self) -> None:
        ready = self._due
        run = 0
        while ready:
            if run >= HANDLES_PER_INSTANT_MAX:
                raise Stuck(f"no end at {self.now_s:.3f} s in {ready[0].process}: {ready[0]._callback}")
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle.process
            if process.state:
                if process.state == PAUSED:
                    process.held.append(handle)
                continue
            run += 1
            self.digest = (self.digest * DIGEST_STEP + process.number) & DIGEST_MASK
            try:
                handle._context.run(handle._callback, *handle._args)  # type: ignore[arg-type]  # not cancelled, so not None
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # as every loop does: it is told, and the others go on
                if process.state != DEAD:
                    self.call_exception_handler({"message": f"in {process.name}", "exception": error})
        self.handles_run += run

    def _go_on(self, until_s: float) -> None:
        """To the time of the next timer."""
        timers, ready = self._timers, self._due
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Stuck(f"nothing is left to happen at {self.now_s:.3f} s")
        when = timers[0][0]
        if when > until_s:
            raise Stuck(f"not done after {until_s:.0f} s")
        self.now_s = when
        self.digest = (self.digest * DIGEST_STEP + int(when * 1e6)) & DIGEST_MASK
        while timers and timers[0][0] <= when:
            ready.append(heapq.heappop(timers)[2])

    def close(self) -> None:
        """What is left of tasks ends here, and can do nothing."""
        self._over = True
        self._due.clear()
        self._timers.clear()
        graves = self._graves | asyncio.all_tasks(self)
        buried: set[asyncio.Task[Any]] = set()
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of what it wants to await, and does not
                while graves:
                    for task in graves:
                        _bury(task)
                    buried |= graves
                    graves = asyncio.all_tasks(self) - buried  # what the dead wanted to have done
        finally:
            asyncio._set_running_loop(before)
        self._graves.clear()

    # What asyncio and the code on this loop use.

    def time(self) -> float:
        return self.now_s

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        if context is None:
            context = copy_context()
        handle = SimHandle(self.now_s, callback, args, context, context.get(CURRENT) or self.outside)
        if not self._over:
            self._due.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # there are no threads

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        if context is None:
            context = copy_context()
        process = context.get(CURRENT) or self.outside
        clock = process.clock
        if delay < 0:
            delay = 0.0
        when = self.now_s + (delay if clock is None else delay / (clock.rate or 1.0))
        handle = SimHandle(when, callback, args, context, process)
        if not self._over:
            self._timer_number += 1
            heapq.heappush(self._timers, (when, self._timer_number, handle))
        return handle

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> SimHandle:
        return self.call_later(when - self.now_s, callback, *args, context=context)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]  # asyncio's knows generators too
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._over:
            error = context.get("exception")
            self.failures.append(f"{self.now_s:.3f} s: {context.get('message')}: {error!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._over


LAST_WISHES_MAX = 50


def _bury(task: "asyncio.Task[Any]") -> None:
    if not task.done():
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # no public way
        coroutine = cast(Coroutine[Any, Any, Any], task.get_coro())
        with suppress(BaseException):  # it is over: whatever it wants to say concerns nobody
            for _ in range(LAST_WISHES_MAX):
                coroutine.throw(asyncio.CancelledError())  # from the inside out; each time it may want something else
            coroutine.close()
