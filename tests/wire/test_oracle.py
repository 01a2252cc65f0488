"""Every declared message, in every version, against a codec that others wrote."""

import random

import pytest

from headrace.wire.compiler import decode, encode
from headrace.wire.struct import Message
from tests.wire.oracle import PAIRS, kio_bytes, kio_class, random_entity, same


def label(value: object) -> str:
    return value.__name__ if isinstance(value, type) else f"v{value}"


@pytest.mark.parametrize(("cls", "version"), PAIRS, ids=label)
def test_a_message_means_the_same_to_both_codecs(cls: type[Message], version: int) -> None:
    chance = random.Random(f"{cls.__name__} {version}")
    for _ in range(8):
        entity = random_entity(chance, kio_class(cls, version))
        wire = kio_bytes(entity)
        message = decode(cls, version, wire)
        assert same(message, entity), f"{message} is not {entity}"
        assert encode(message, version) == wire
