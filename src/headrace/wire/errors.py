"""The one way in which bytes from outside can be wrong, and its counterpart for our own."""


class ProtocolError(ValueError):
    """Bytes that do not follow Kafka's protocol. The text is one sentence that says what was found."""


class Unencodable(ProtocolError):
    """Values that a message has no room for: not the other side's mistake, but that of whoever made it."""
