"""The one door to the compiler of loops.

What is called for each record gets the addresses of its arrays: of an array that it is given, the compiler counts
references, with locks that cost more than the rest of a record.
"""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compiled when it is called first, which takes seconds, and kept for the next process: beside the source or in
    the user's cache; where neither can be written to, among temporary files; and where that cannot be, not at all."""
    try:
        return _kept(function)
    except RuntimeError:  # no place to keep it
        try:
            with _kept_among_temporary_files():
                return _kept(function)
        except (RuntimeError, OSError):
            return cast(F, numba.njit(nogil=True)(function))


def _kept(function: F) -> F:
    made: Any = numba.njit(nogil=True)(function)
    kept: Any = _Kept
    made._cache = kept(function)
    return cast(F, made)


class _Kept(FunctionCache):
    """A disk that is full, a directory that is gone and a file that a crash has cut off cost the time to compile."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        cache: Any = super()
        try:
            return cache.load_overload(sig, target_context)
        except Exception:  # what is left of a file can fail in any way
            with suppress(OSError):
                cache.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        cache: Any = super()
        with suppress(OSError):
            cache.save_overload(sig, data)


@contextmanager
def _kept_among_temporary_files() -> Iterator[None]:
    """OSError unless the directory is this user's alone: what is loaded from there is run."""
    path = Path(tempfile.gettempdir()) / f"headrace-compiled-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not this user's alone")
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(path)
    try:
        yield
    finally:
        config.CACHE_DIR = before


@compiled
def address_of(array: Any) -> Any:
    """Where its first byte lies, for as long as somebody has the array."""
    return np.int64(array.ctypes.data)


def _place(builder: Any, address: Any, at: Any) -> Any:
    return builder.inttoptr(builder.add(address, at), cgutils.voidptr_t)


def _byte_at(_typing: Any, _address: Any, _at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = builder.load(_place(builder, *arguments))
        return builder.zext(byte, context.get_value_type(signature.return_type))

    return types.int64(types.int64, types.int64), generate


def _put_byte(_typing: Any, _address: Any, _at: Any, _byte: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, at, byte = arguments
        builder.store(builder.trunc(byte, cgutils.int8_t), _place(builder, address, at))
        return byte

    return types.int64(types.int64, types.int64, types.int64), generate


def _copy_bytes(_typing: Any, _into: Any, _at: Any, _data: Any, _pos: Any, _count: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        into, at, data, pos, count = arguments
        copy: Any = cgutils.raw_memcpy
        copy(builder, _place(builder, into, at), _place(builder, data, pos), count, 1)
        return builder.add(at, count)

    return types.int64(types.int64, types.int64, types.int64, types.int64, types.int64), generate


byte_at: Any = intrinsic(_byte_at)
"""`byte_at(address, at)`, as a number of 64 bits. Unchecked, as all of these."""

put_byte: Any = intrinsic(_put_byte)
"""`put_byte(address, at, byte)`: the lowest eight bits."""

copy_bytes: Any = intrinsic(_copy_bytes)
"""`copy_bytes(into, at, data, pos, count)`, of which `into` and `data` are addresses; where the copy ends."""
