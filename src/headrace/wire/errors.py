"""The one way in which bytes from outside can be wrong."""


class ProtocolError(ValueError):
    """Bytes that do not follow Kafka's protocol. The text is one sentence that says what was found."""
