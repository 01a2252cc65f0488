"""Ids as Kafka makes them: random UUIDs, shown as 22 characters of URL-safe base64."""

from base64 import urlsafe_b64encode

from headrace.runtime import Random


def new_uuid(random: Random) -> bytes:
    """Never one that a command line would take for an option."""
    while True:
        bits = random.bits(128)
        bits = bits & ~(0xF << 76) | 4 << 76  # version 4
        bits = bits & ~(0x3 << 62) | 2 << 62  # variant
        made = bits.to_bytes(16, "big")
        if not text_of(made).startswith("-"):
            return made


def text_of(uuid: bytes) -> str:
    return urlsafe_b64encode(uuid).decode().rstrip("=")
