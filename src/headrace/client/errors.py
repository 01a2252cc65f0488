"""What a client raises besides what a broker said."""

from headrace.core.transactional_id import attempt_of
from headrace.errors import ErrorCode, KafkaError


class NotReachable(KafkaError):
    """No broker answers."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, message)


class TimedOut(KafkaError):
    """It was tried until its time was up. The text says what was in the way."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class BufferFull(KafkaError):
    """The producer holds as much as it may: await `ready()` before the next `send()`."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.RECORD_LIST_TOO_LARGE, message)


class Fenced(KafkaError):
    """The transactional id belongs to another producer now, or the coordinator took it back. This one is of no use."""


class TransactionFailed(KafkaError):
    """Something of the transaction is lost: `abort()` it, then begin again."""


def topic_error(code: int, topic: str, otherwise: str) -> KafkaError:
    """What a person has to know of a topic that a broker refuses; `otherwise` where the code says nothing plain."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return KafkaError(code, f"topic {topic!r} does not exist")
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return KafkaError(code, f"{topic!r} cannot be the name of a topic")
    if code == ErrorCode.INVALID_REPLICATION_FACTOR:
        return KafkaError(
            code,
            f"topic {topic!r} does not exist, and is not created: fewer brokers are alive than a new topic has copies "
            "(default.replication.factor); create it with fewer, or start the others",
        )
    return KafkaError(code, otherwise)


def not_initialised(code: int, transactional_id: str, timeout_ms: int) -> KafkaError:
    """A refusal that a setting of the brokers' is behind, with the way out: they answer with a number alone."""
    if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        way_out = (
            f"its transactions may take {timeout_ms} ms, which is more than the brokers' transaction.max.timeout.ms: "
            "ask for less, or set that higher"
        )
    elif attempt_of(transactional_id) is None:
        way_out = "its coordinator keeps as many transactional ids as it can: use fewer, or wait until some expire"
    else:
        way_out = (
            "there are more open attempts at one batch than the brokers' commit.group.max.attempts: use fewer tasks, "
            "or set that higher; or its coordinator remembers as many queries as it can: set the brokers' "
            "commit.group.retention.ms, after which those are forgotten that nobody runs any more"
        )
    return KafkaError(code, way_out)
