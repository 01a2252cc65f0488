"""What a stock client may say of ownership: its client.id, own--GROUP--NUMBER--INSTANCE.

The number is a fencing token, chosen by whoever starts processes; it rises with every start.
"""

from typing import NamedTuple

TOKEN_MAX = 2**31 - 1
GROUP_CHARS_MAX = 249
PREFIX = "own--"
_BETWEEN = "--"


class Token(NamedTuple):
    group: str
    number: int


def token_of(client_id: str | None) -> Token | None:
    """None for an ordinary client.id. Read from the right: a group may have the separator in it."""
    if client_id is None or not client_id.startswith(PREFIX):
        return None
    parts = client_id[len(PREFIX) :].rsplit(_BETWEEN, 2)
    if len(parts) != 3:
        return None
    group, number, instance = parts
    if not 0 < len(group) <= GROUP_CHARS_MAX or not instance or not (number.isascii() and number.isdigit()):
        return None
    if len(number) > len(str(TOKEN_MAX)) or not 0 < int(number) <= TOKEN_MAX:
        return None
    return Token(group, int(number))
