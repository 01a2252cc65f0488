"""Whether a store keeps the one promise that everything rests on: of two that create an object, one is told so."""

from contextlib import suppress

from headrace.tier.layout import new_id
from headrace.tier.store import ObjectExists, ObjectMissing, ObjectStore, Refused, StoreUnavailable

PROBE_PREFIX = "headrace-probe/"


async def probe(store: ObjectStore, random_bits: int) -> None:
    """Raises Refused, or StoreUnavailable while it cannot be told. `random_bits` are 128, new ones for each probe."""
    key = PROBE_PREFIX + new_id(random_bits)
    first, second = b"first", b"second"
    try:
        # Nobody else chose this name: if it is taken, an answer was lost and the adapter has tried again.
        with suppress(ObjectExists):
            await store.put(key, [first])
        try:
            await store.put(key, [second])
        except ObjectExists:
            pass
        else:
            raise Refused(
                "The object store lets a second create-only write of an object win: two leaders could overwrite "
                "each other's segments. It needs conditional writes (If-None-Match)."
            )
        try:
            found = await store.get(key, 0, len(first))
            size = await store.size(key)
        except ObjectMissing:
            raise Refused("The object store does not have an object that it has just stored.") from None
        if found != first or size != len(first):
            raise Refused("The object store refuses a second create-only write of an object, and does it nevertheless.")
    finally:
        with suppress(StoreUnavailable):
            await store.delete(key)
