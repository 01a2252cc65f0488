"""Keeps the sum of what is held open or in memory below a bound, dropping what nobody used for longest."""

from typing import Protocol


class Resident(Protocol):
    """Something that can be dropped and brought back. It sets `used` itself, whenever it is used."""

    used: bool

    def evict(self) -> None: ...


class Residency:
    """Second chance: whoever was used since the last look stays, so that a use costs one attribute."""

    __slots__ = ("_weights", "weight", "weight_max")

    def __init__(self, weight_max: int) -> None:
        self.weight_max = weight_max
        self.weight = 0
        self._weights: dict[Resident, int] = {}

    def admit(self, resident: Resident, weight: int = 1) -> None:
        """`resident` is there now, or has another weight. Others are evicted to make room, never `resident`."""
        weights = self._weights
        self.weight += weight - weights.pop(resident, 0)
        weights[resident] = weight
        while self.weight > self.weight_max and len(weights) > 1:
            other = next(iter(weights))
            other_weight = weights.pop(other)
            if other.used or other is resident:
                other.used = False
                weights[other] = other_weight
            else:
                self.weight -= other_weight
                other.evict()

    def forget(self, resident: Resident) -> None:
        self.weight -= self._weights.pop(resident, 0)

    def __len__(self) -> int:
        return len(self._weights)
