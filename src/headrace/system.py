"""The real clock, chance and threads, handed to nodes that run for real."""

import asyncio
import ctypes
import os
import pickle
import resource
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TypeVar

from headrace.runtime import StepsLost

T = TypeVar("T")

_STATX_MNT_ID_UNIQUE = 0x4000
_AT_FDCWD = -100
_STATX_BYTES, _MNT_ID_AT = 256, 144


def descriptors_max() -> int:
    """How many files and connections this process may have open at one time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def origin_of(path: str) -> str:
    """Which directory of which machine this is: a copy has another."""
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = socket.gethostname()
    try:
        found = os.stat(path)
    except OSError:
        return f"{machine}:{path}"
    return f"{machine}:{found.st_dev}:{found.st_ino}"


def mount_id_of(path: str) -> str:
    """Another one after the file system was mounted anew; empty where the kernel does not tell."""
    return _unique_mount_id(path) or _mount_number(path)


def _unique_mount_id(path: str) -> str:
    """Linux 6.8 and newer. No other mount ever gets it, where a mount's number is free again after umount."""
    try:
        statx = ctypes.CDLL(None).statx
    except (AttributeError, OSError):
        return ""  # Another C library.
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    failed = statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_MNT_ID_UNIQUE, answer)
    told = answer.raw
    if failed or not int.from_bytes(told[:4], sys.byteorder) & _STATX_MNT_ID_UNIQUE:
        return ""
    return f"unique {int.from_bytes(told[_MNT_ID_AT : _MNT_ID_AT + 8], sys.byteorder)}"


def _mount_number(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_PATH)
    except OSError:
        return ""
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return next((line.split()[1] for line in lines if line.startswith("mnt_id:")), "")


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


class ProcessApart:
    """Takes the steps in a process of its own: no thread of this one ever waits for its interpreter."""

    def __init__(self) -> None:
        self._worker: subprocess.Popen[bytes] | None = None

    def begin(self, work: Callable[[], Iterator[T]]) -> Iterator[T]:
        return self._steps(work)

    def _steps(self, work: Callable[[], Iterator[T]]) -> Iterator[T]:
        worker = self._running()
        assert worker.stdin is not None and worker.stdout is not None
        request: object = work
        while True:
            try:
                _send(worker.stdin, request)
                is_over, step = pickle.load(worker.stdout)
            except (OSError, EOFError, pickle.UnpicklingError):
                self.rest()
                raise StepsLost(f"the process that took them ended with {worker.returncode}") from None
            if isinstance(step, Exception):
                raise step
            if is_over:
                return
            yield step
            request = None

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._worker is None or self._worker.poll() is not None:
            command = [sys.executable, "-m", "headrace.worker"]
            self._worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._worker

    def rest(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            with worker:
                pass


def _send(pipe: IO[bytes], request: object) -> None:
    pickle.dump(request, pipe)
    pipe.flush()
