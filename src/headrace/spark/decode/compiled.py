"""The one door to the compiler of loops."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import cgutils, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compiled when it is called first, and kept beside the source for the next process."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))


def _copy_bytes(_typing: Any, into: Any, _at: Any, data: Any, _pos: Any, _count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_array, at, origin_array, pos, count = arguments
        target = context.make_array(signature.args[0])(context, builder, target_array).data
        origin = context.make_array(signature.args[2])(context, builder, origin_array).data
        copy: Any = cgutils.raw_memcpy
        copy(builder, builder.gep(target, [at]), builder.gep(origin, [pos]), count, 1)
        return count

    return types.int64(into, types.int64, data, types.int64, types.int64), generate


copy_bytes: Any = intrinsic(_copy_bytes)
"""`copy_bytes(into, at, data, pos, count)`, unchecked: an assignment of slices would cost more than all else here."""
