"""Warnings of settings that are allowed, and may not do what was meant."""

import logging
from collections.abc import Mapping

from headrace.config import TOPIC_SETTINGS, BrokerConfig, TopicConfig, valid_only
from headrace.controller.tier_rules import tier_warning
from headrace.core.cluster import ClusterImage

log = logging.getLogger(__name__)

TIERED = "remote.storage.enable"


def warn_of_topic(image: ClusterImage, name: str, overrides: Mapping[str, str]) -> None:
    warning = _warning(image.broker_config, overrides)
    if warning is not None:
        log.warning("topic %s: %s", name, warning)


def news_of_defaults(image: ClusterImage, after: BrokerConfig) -> str | None:
    """What there would be to warn of with other defaults: in one line, of however many topics."""
    before = image.broker_config
    news = [
        (name, warning)
        for name, topic in image.topics.items()
        if TIERED in topic.overrides
        and (warning := _warning(after, topic.overrides)) is not None
        and warning != _warning(before, topic.overrides)
    ]
    if not news:
        return None
    name, warning = min(news)
    return f"topic {name}{f' (and {len(news) - 1} others)' if len(news) > 1 else ''}: {warning}"


def _warning(broker_config: BrokerConfig, overrides: Mapping[str, str]) -> str | None:
    if TIERED not in overrides:
        return None
    return tier_warning(TopicConfig.resolve(broker_config, valid_only(TOPIC_SETTINGS, overrides.items())))
