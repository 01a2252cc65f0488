"""The topic of dead letters is there before a lake reads its first row, however many brokers are alive."""

from collections.abc import Callable

from headrace.client import Admin, NewTopic
from headrace.errors import ErrorCode, KafkaError

DEFAULT = -1
"""As many copies as the brokers give a topic of which nobody says more."""


async def create_dead_letter_topic(bootstrap: str, topic: str, said: Callable[[str], None]) -> None:
    """Nothing if it is there. Fewer copies than by default, and a word about it, where too few brokers are alive."""
    async with Admin(bootstrap) as admin:
        try:
            await _create(admin, topic, DEFAULT)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
                raise
            await _create_with_fewer(admin, topic, said)


async def _create_with_fewer(admin: Admin, topic: str, said: Callable[[str], None]) -> None:
    """Brokers that are asked how many they are may count one that just died: then one copy fewer, down to 1."""
    alive = len((await admin.describe_cluster()).brokers)
    for copies in range(alive, 0, -1):
        try:
            if await _create(admin, topic, copies):
                said(
                    f"topic {topic} for dead letters has {copies} cop{'y' if copies == 1 else 'ies'}, fewer than "
                    "default.replication.factor asks for, since so few brokers are alive: give it more later"
                )
            return
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR or copies == 1:
                raise


async def _create(admin: Admin, topic: str, copies: int) -> bool:
    """False if somebody has made it before."""
    try:
        await admin.create_topics([NewTopic(topic, replication_factor=copies)])
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True
