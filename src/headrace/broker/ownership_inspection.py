"""Who owns what on this node, since when, at which generation, and who was refused last: for people who ask."""

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.broker.broker import Broker
from headrace.core.ownership import FETCH, PRODUCE, Entry


def tell(broker: Broker, groups: Sequence[str]) -> list[dict[str, Any]]:
    """Of these groups; of none: of all."""
    wanted = frozenset(groups)
    return [_row(broker, entry) for entry in entries(broker) if not wanted or entry.group in wanted]


def entries(broker: Broker) -> Iterator[Entry]:
    own = broker.ownership
    for gate in own.gates.values():
        yield from gate.entries.values()
    if own.term:
        yield from own.names.values()


def _row(broker: Broker, entry: Entry) -> dict[str, Any]:
    now_ms = broker.clock.monotonic_ms()
    tenure, record, refused = entry.tenure, entry.retained(now_ms), entry.refused
    bits = tenure.exclusive if tenure is not None else 0 if record is None else record.exclusive
    return {
        "group": entry.group,
        "resource": entry.resource,
        "generation": tenure.generation if tenure is not None else 0 if record is None else record.generation,
        "owner": None if tenure is None else _owner(entry, now_ms),
        "retained_ms": None if tenure is not None or record is None else entry.expires_ms - now_ms,
        "exclusive": [name for name, bit in (("produce", PRODUCE), ("fetch", FETCH)) if bits & bit],
        "standbys": len(entry.standbys),
        "refused": None
        if refused is None
        else {
            "client_id": refused.client_id,
            "address": refused.address,
            "generation": refused.generation,
            "wall_ms": refused.wall_ms,
        },
    }


def _owner(entry: Entry, now_ms: int) -> dict[str, Any] | None:
    tenure = entry.tenure
    if tenure is None:
        return None
    peer = next(iter(tenure.peers))
    return {
        "client_id": peer.client_id or "",
        "address": peer.peer,
        "principal": peer.principal,
        "connections": len(tenure.peers),
        "since_ms": now_ms - tenure.granted_ms,
        "fence_offset": tenure.fence_offset,
        "is_confirmed": tenure.is_confirmed,
    }
