"""How long a hunt lasts, and with which seed it can be repeated."""

import os
import time
from collections.abc import Iterator
from random import Random, SystemRandom

MINUTES = float(os.environ.get("HUNT_MINUTES", "5"))
PIPELINE_MINUTES = float(os.environ.get("HUNT_PIPELINE_MINUTES", "30"))
"""Spark takes its time: a round of it is four minutes."""


def seed() -> int:
    """HUNT_SEED, or a new one in every run; a failure prints it."""
    chosen = int(os.environ.get("HUNT_SEED") or SystemRandom().getrandbits(32))
    print(f"HUNT_SEED={chosen}")
    return chosen


def rounds(minutes: float = MINUTES) -> Iterator[Random]:
    """As many as fit into the time, at least one, all by one seed."""
    random = Random(seed())
    deadline = time.monotonic() + minutes * 60
    yield random
    while time.monotonic() < deadline:
        yield random
