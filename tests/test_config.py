"""Settings: what is read, what is refused and how, and where a topic's values come from."""

import gc
from collections.abc import Mapping

import pytest

from headrace.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    TopicConfig,
    TopicConfigs,
    topic_defaults,
)
from headrace.settings import InvalidSetting, Kind, parse, render

DAY_MS = 86_400_000


def topic(overrides: Mapping[str, str], broker: Mapping[str, str] | None = None) -> TopicConfig:
    return TopicConfig.resolve(BrokerConfig.parse(broker or {}), overrides)


def refusal(overrides: Mapping[str, str]) -> str:
    with pytest.raises(InvalidSetting) as refused:
        topic(overrides)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 42 ", 42),
        ("retention.ms", str(2**63 - 1), 2**63 - 1),
        ("segment.bytes", str(2**31 - 1), 2**31 - 1),
        ("unclean.leader.election.enable", "TRUE", True),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("cleanup.policy", " delete ", ("delete",)),
        ("follower.replication.throttled.replicas", "0:1, 1:1,", ("0:1", "1:1")),
        ("follower.replication.throttled.replicas", "", ()),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
    ],
)
def test_a_setting_is_read_as_kafka_reads_it(name: str, text: str, value: object) -> None:
    assert getattr(topic({name: text}), name.replace(".", "_")) == value


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("segment.bytes", "13", "Invalid value '13' for segment.bytes: it is from 14 to 2147483647"),
        ("segment.bytes", "2147483648", "Invalid value '2147483648' for segment.bytes: it is from 14 to 2147483647"),
        ("segment.bytes", "1e6", "Invalid value '1e6' for segment.bytes: it is a whole number"),
        ("segment.bytes", "1_000", "Invalid value '1_000' for segment.bytes: it is a whole number"),
        ("segment.bytes", "", "Invalid value '' for segment.bytes: it is a whole number"),
        ("segment.bytes", "9" * 5000, f"Invalid value '{'9' * 5000}' for segment.bytes: it is a whole number"),
        ("retention.ms", "-2", "Invalid value '-2' for retention.ms: it is from -1 to 9223372036854775807"),
        ("min.cleanable.dirty.ratio", "nan", "Invalid value 'nan' for min.cleanable.dirty.ratio: it is from 0 to 1"),
        ("preallocate", "yes", "Invalid value 'yes' for preallocate: it is true or false"),
        (
            "message.timestamp.type",
            "Never",
            "Invalid value 'Never' for message.timestamp.type: it is one of CreateTime, LogAppendTime",
        ),
        ("cleanup.policy", "", "cleanup.policy is empty: it needs at least one of delete, compact"),
        (
            "compression.type",
            "zstd",
            "Invalid value 'zstd' for compression.type: the broker stores what producers send and never compresses "
            "anew, only producer is possible",
        ),
        ("segmant.bytes", "1", "Unknown topic setting 'segmant.bytes'; did you mean segment.bytes"),
        ("zzz", "1", "Unknown topic setting 'zzz'"),
    ],
)
def test_a_bad_setting_is_refused_with_its_name_its_value_and_what_is_allowed(
    name: str, text: str, sentence: str
) -> None:
    assert refusal({name: text}).startswith(sentence)


def test_a_minimal_lag_above_the_maximal_one_is_refused() -> None:
    sentence = refusal({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    assert sentence == "min.compaction.lag.ms (5) is above max.compaction.lag.ms (4)"


def test_a_gate_names_a_group_that_can_claim() -> None:
    assert refusal({"own.produce.group": "g" * 250}) == "own.produce.group is longer than 249 characters"


def test_a_request_limit_above_what_may_be_queued_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"queued\.max\.request\.bytes \(2048\) is below"):
        BrokerConfig.parse({"queued.max.request.bytes": "2048"})


def test_later_layers_of_broker_settings_win() -> None:
    config = BrokerConfig.parse({"max.connections": "1", "num.partitions": "3"}, {"max.connections": "2"})
    assert (config.max_connections, config.num_partitions) == (2, 3)


def test_a_topic_inherits_from_its_broker_what_it_does_not_set() -> None:
    config = topic({"segment.bytes": "1000"}, {"log.segment.bytes": "2000", "message.max.bytes": "77"})
    assert (config.segment_bytes, config.max_message_bytes) == (1000, 77)


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({}, 7 * DAY_MS),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_unit_that_is_set_decides(broker: dict[str, str], retention_ms: int) -> None:
    assert topic({}, broker).retention_ms == retention_ms


def test_topics_with_equal_overrides_share_one_object() -> None:
    configs = TopicConfigs(BrokerConfig())
    one, other = {"segment.bytes": "1000", "retention.ms": "5"}, {"retention.ms": "5", "segment.bytes": "1000"}
    first = configs.get(one)
    assert configs.get(other) is first
    assert configs.get({}) is configs.get({}) is not first
    assert configs.get({"retention.ms": "6"}) is not first


def test_a_shared_object_that_nobody_uses_is_forgotten() -> None:
    configs = TopicConfigs(BrokerConfig())
    for retention_ms in range(50):
        configs.get({"retention.ms": str(retention_ms)})
    gc.collect()
    assert len(configs._shared) == 0


def test_a_stored_override_that_cannot_be_read_counts_as_not_set() -> None:
    config = TopicConfigs(BrokerConfig()).get({"from.the.future": "x", "segment.bytes": "many", "retention.ms": "5"})
    assert (config.segment_bytes, config.retention_ms) == (1 << 30, 5)


@pytest.mark.parametrize("name", [*TOPIC_SETTINGS, *BROKER_SETTINGS])
def test_every_default_is_a_value_that_the_setting_allows(name: str) -> None:
    setting = TOPIC_SETTINGS.get(name) or BROKER_SETTINGS[name]
    text = render(setting.default)
    if text is None:
        assert setting.default is None
    else:
        assert parse(setting, text) == setting.default
    assert setting.name == name
    assert setting.doc.endswith(".")


def test_topic_defaults_are_those_of_a_broker_without_settings() -> None:
    assert topic_defaults(BrokerConfig()) == TopicConfig()


def test_a_topic_setting_inherits_from_broker_settings_of_its_kind() -> None:
    for setting in TOPIC_SETTINGS.values():
        for name, factor in setting.inherits:
            inherited = BROKER_SETTINGS[name]
            assert factor > 1 or inherited.kind is setting.kind
            assert factor == 1 or inherited.kind is Kind.INT
