"""Which settings go together with a tier."""

import pytest

from headrace.config import BrokerConfig, TopicConfig
from headrace.controller.tier_rules import tier_refusal, tier_warning

WITH = BrokerConfig.parse({"remote.log.storage.system.enable": "true", "remote.storage.url": "/objects"})
WITHOUT = BrokerConfig.parse({})


def topic(**settings: str) -> TopicConfig:
    return TopicConfig.resolve(WITH, {name.replace("_", "."): text for name, text in settings.items()})


TIERED = topic(remote_storage_enable="true")


def test_a_topic_is_tiered_only_where_there_is_a_tier() -> None:
    assert tier_refusal(WITH, None, TIERED) is None
    assert "remote.log.storage.system.enable is false" in str(tier_refusal(WITHOUT, None, TIERED))
    assert tier_refusal(WITHOUT, None, topic()) is None
    assert tier_refusal(WITHOUT, topic(), TIERED) is not None


def test_a_controller_without_a_tier_changes_other_settings_of_a_tiered_topic() -> None:
    assert tier_refusal(WITHOUT, TIERED, topic(remote_storage_enable="true", retention_ms="1000")) is None


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_is_not_tiered(policy: str) -> None:
    compacted = topic(remote_storage_enable="true", cleanup_policy=policy)
    assert "compacted" in str(tier_refusal(WITH, None, compacted))
    assert "compacted" in str(tier_refusal(WITH, TIERED, compacted))


def test_what_is_in_the_tier_is_not_forgotten_by_a_setting() -> None:
    assert "remote.log.delete.on.disable=true" in str(tier_refusal(WITH, TIERED, topic()))
    assert tier_refusal(WITH, TIERED, topic(remote_log_delete_on_disable="true")) is None
    assert tier_refusal(WITH, topic(), topic()) is None


@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_disks_keep_no_more_than_the_log_has(unit: str) -> None:
    def kept(local: str, whole: str) -> str | None:
        return tier_refusal(
            WITH, None, topic(**{**TIERED_BY_NAME, f"local_retention_{unit}": local, f"retention_{unit}": whole})
        )

    assert kept("-2", "10") is kept("10", "10") is kept("11", "-1") is kept("-1", "-1") is None
    assert f"local.retention.{unit} (11) is above retention.{unit} (10)" in str(kept("11", "10"))
    assert kept("-1", "10") is not None


TIERED_BY_NAME = {"remote_storage_enable": "true"}


def test_a_threshold_above_local_retention_is_warned_of() -> None:
    def warned(**settings: str) -> str | None:
        return tier_warning(topic(**TIERED_BY_NAME, **settings))

    assert warned(leader_election_eligible_local_log_ms="5000") is None
    assert warned(leader_election_eligible_local_log_ms="5000", local_retention_ms="5000") is None
    above = warned(leader_election_eligible_local_log_ms="5000", local_retention_ms="4999")
    assert "leader.election.eligible.local.log.ms (5000)" in str(above)
    assert warned(leader_election_eligible_local_log_bytes="1000", local_retention_bytes="10") is not None
    assert warned(leader_election_eligible_local_log_bytes="1000", local_retention_bytes="-1") is None
    assert tier_warning(topic(leader_election_eligible_local_log_ms="5000", local_retention_ms="1")) is None
