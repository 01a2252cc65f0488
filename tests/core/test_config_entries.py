"""What DescribeConfigs tells agrees with the settings in force."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.config import TopicConfig
from headrace.core.cluster import BrokerOverrides, ClusterImage
from headrace.core.config_entries import (
    Entry,
    Source,
    Synonym,
    all_brokers_entries,
    broker_entries,
    topic_entries,
)
from headrace.settings import attribute, parse


def entry(entries: list[Entry], name: str) -> Entry:
    return next(found for found in entries if found.setting.name == name)


def test_a_value_hides_weaker_ones_in_order() -> None:
    image = ClusterImage(1, {"log.retention.ms": "4", "log.retention.hours": "5"})
    image.apply([BrokerOverrides(None, {"log.retention.ms": "3"}, 1), BrokerOverrides(1, {"log.retention.ms": "2"}, 1)])
    found = entry(topic_entries(image, {"retention.ms": "1"}), "retention.ms")
    assert (found.value, found.source, found.read_only) == ("1", Source.TOPIC, False)
    assert found.synonyms == [
        Synonym("retention.ms", "1", Source.TOPIC),
        Synonym("log.retention.ms", "2", Source.BROKER),
        Synonym("log.retention.ms", "3", Source.ALL_BROKERS),
        Synonym("log.retention.ms", "4", Source.STATIC),
        Synonym("log.retention.hours", "5", Source.STATIC),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    ]


def test_a_value_in_another_unit_is_converted_and_its_synonym_is_not() -> None:
    found = entry(topic_entries(ClusterImage(1, {"log.retention.minutes": "2"}), {}), "retention.ms")
    assert (found.value, found.source) == ("120000", Source.STATIC)
    assert found.synonyms[0] == Synonym("log.retention.minutes", "2", Source.STATIC)


def test_a_setting_without_any_value_has_none() -> None:
    found = entry(broker_entries(ClusterImage(1, {}), 1), "broker.rack")
    assert (found.value, found.source, found.read_only, found.synonyms) == (None, Source.DEFAULT, True, [])


def test_what_can_change_at_run_time_is_not_read_only() -> None:
    entries = broker_entries(ClusterImage(1, {"num.partitions": "4"}), 1)
    assert not entry(entries, "log.retention.ms").read_only
    found = entry(entries, "num.partitions")
    assert (found.value, found.source, found.read_only) == ("4", Source.STATIC, True)


def test_settings_of_all_nodes_are_only_those_that_are_set() -> None:
    image = ClusterImage(1, {"num.partitions": "4"})
    assert all_brokers_entries(image) == []
    image.apply([BrokerOverrides(None, {"log.retention.ms": "3"}, 1)])
    (found,) = all_brokers_entries(image)
    assert (found.setting.name, found.value, found.source) == ("log.retention.ms", "3", Source.ALL_BROKERS)


layers = st.fixed_dictionaries(
    {}, optional={"log.retention.ms": st.sampled_from(["-1", "7"]), "log.segment.bytes": st.sampled_from(["20", "30"])}
)
static = st.fixed_dictionaries(
    {},
    optional={
        "log.retention.hours": st.just("3"),
        "log.retention.minutes": st.just("2"),
        "log.retention.ms": st.just("1"),
        "log.roll.hours": st.just("9"),
        "log.flush.interval.ms": st.just("8"),
    },
)
overrides = st.fixed_dictionaries({}, optional={"retention.ms": st.just("11"), "flush.ms": st.just("12")})


@given(static, layers, layers, overrides)
def test_what_is_told_of_a_topic_is_what_is_in_force(
    started: dict[str, str], everywhere: dict[str, str], own: dict[str, str], topic: dict[str, str]
) -> None:
    image = ClusterImage(1, started)
    image.apply([BrokerOverrides(None, everywhere, 1), BrokerOverrides(1, own, 1)])
    config = TopicConfig.resolve(image.broker_config, topic)
    for found in topic_entries(image, topic):
        assert found.value is not None
        assert parse(found.setting, found.value) == getattr(config, attribute(found.setting.name))
    for found in broker_entries(image, 1):
        value = None if found.value is None else parse(found.setting, found.value)
        assert value == getattr(image.broker_config, attribute(found.setting.name))
