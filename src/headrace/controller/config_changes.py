"""Requests that change settings, each through as many attempts as it takes."""

import logging
from collections.abc import Callable, Mapping
from typing import TypeAlias

from headrace.controller import writing
from headrace.controller.configs import Edits, edited_broker, edited_topic
from headrace.controller.ledger import Ledger
from headrace.controller.tier_warnings import news_of_defaults, warn_of_topic
from headrace.controller.topics import Refusal
from headrace.core.cluster import BrokerOverrides
from headrace.errors import ErrorCode

log = logging.getLogger(__name__)

EditsOf: TypeAlias = Callable[[Mapping[str, str]], Edits]
"""From the current settings to edits of them: asked again when somebody else has changed them meanwhile."""

DONE = Refusal(ErrorCode.NONE, "")


class AlterTopicSettings:
    """`settled` is DONE, or why not; None is not known."""

    def __init__(self, ledger: Ledger, name: str, edits_of: EditsOf, validate_only: bool) -> None:
        self.settled: Refusal | None = None
        self._ledger = ledger
        self._name = name
        self._edits_of = edits_of
        self._validate_only = validate_only

    async def attempt(self) -> bool:
        self.settled = await self._alter()
        return self.settled is not None

    async def _alter(self) -> Refusal | None:
        topic = self._ledger.image.topics.get(self._name)
        if topic is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {self._name!r} does not exist")
        after = edited_topic(self._ledger.image, topic, self._edits_of(topic.overrides))
        if isinstance(after, Refusal):
            return after
        if self._validate_only or after == topic.overrides:
            return DONE
        if not await writing.write_topic_overrides(self._ledger.store, topic, after):
            return None
        warn_of_topic(self._ledger.image, self._name, after)
        return DONE


class AlterBrokerSettings:
    """Of one node, or of all (`broker_id` None). `settled` is DONE, or why not; None is not known."""

    def __init__(self, ledger: Ledger, broker_id: int | None, edits_of: EditsOf, validate_only: bool) -> None:
        self.settled: Refusal | None = None
        self._ledger = ledger
        self._broker_id = broker_id
        self._edits_of = edits_of
        self._validate_only = validate_only

    async def attempt(self) -> bool:
        self.settled = await self._alter()
        return self.settled is not None

    async def _alter(self) -> Refusal | None:
        image = self._ledger.image
        if self._broker_id is not None and self._broker_id not in image.brokers:
            return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {self._broker_id} is not registered")
        known = image.broker_overrides.get(self._broker_id, BrokerOverrides(self._broker_id, {}, 0))
        after = edited_broker(image, self._broker_id, self._edits_of(known.overrides))
        if isinstance(after, Refusal):
            return after
        if self._validate_only or after == known.overrides:
            return DONE
        is_default = self._broker_id is None
        warning = news_of_defaults(image, image.broker_config_with({None: after})) if is_default else None
        if not await writing.write_broker_overrides(self._ledger.store, known, after):
            return None
        if warning is not None:
            log.warning("%s", warning)
        return DONE
