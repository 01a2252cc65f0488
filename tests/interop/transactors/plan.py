"""What every program that writes in transactions does: every third transaction is aborted, and all of them are told."""

import json

PARTITIONS = 3
GROUP = "offsets-of-"
SENDING_OFFSETS, ENDING = "sending offsets", "ending"
"""What a program may tell besides outcomes: what it does next."""


def is_aborted(number: int) -> bool:
    return number % 3 == 2


def value_of(transactional_id: str, number: int, tried: int, partition: int) -> bytes:
    return f"{transactional_id} {number} {tried} {partition}".encode()


def tell(outcome: str, number: int, tried: int) -> None:
    print(json.dumps({"outcome": outcome, "number": number, "tried": tried}), flush=True)
