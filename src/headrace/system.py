"""The real clock, chance and threads, handed to nodes that run for real."""

import asyncio
import resource
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def descriptors_max() -> int:
    """How many files and connections this process may have open at one time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


class SystemClock:
    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def boot_id(self) -> str:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class SystemRandom:
    def bits(self, count: int) -> int:
        return secrets.randbits(count)


class ThreadOffload:
    """One thread per lane, started with its first job: a lane's jobs keep their order."""

    def __init__(self) -> None:
        self._lanes: dict[str, ThreadPoolExecutor] = {}

    def run(self, lane: str, job: Callable[[], T]) -> asyncio.Future[T]:
        executor = self._lanes.get(lane)
        if executor is None:
            executor = self._lanes[lane] = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"headrace-{lane}")
        return asyncio.get_running_loop().run_in_executor(executor, job)

    def close(self) -> None:
        for executor in self._lanes.values():
            executor.shutdown(wait=True)
        self._lanes.clear()
