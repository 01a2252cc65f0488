"""Settings as DescribeConfigs tells them: the value in force, where it comes from, and what it hides."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.config import BROKER_SETTINGS, TOPIC_SETTINGS, valid_only
from headrace.core.cluster import ClusterImage
from headrace.settings import Setting, parse, render


class Source(IntEnum):
    """Numbers are Kafka's."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """A place where the value, or one that it hides, is set. Strongest first; the unit is that of its own name."""

    name: str
    value: str
    source: Source


class Entry(NamedTuple):
    setting: Setting
    value: str | None
    source: Source
    read_only: bool
    synonyms: list[Synonym]


def topic_entries(image: ClusterImage, overrides: Mapping[str, str]) -> list[Entry]:
    """Of a topic with these settings of its own, in order of names."""
    overrides = valid_only(TOPIC_SETTINGS, overrides.items())
    layers = _layers(image, image.node_id)
    return [_topic_entry(TOPIC_SETTINGS[name], overrides.get(name), layers) for name in sorted(TOPIC_SETTINGS)]


def broker_entries(image: ClusterImage, broker_id: int) -> list[Entry]:
    """Of a node; what it was started with is known of this node alone."""
    layers = _layers(image, broker_id)
    entries = []
    for name in sorted(BROKER_SETTINGS):
        setting = BROKER_SETTINGS[name]
        synonyms = list(_broker_synonyms(setting, layers))
        value, source = (synonyms[0].value, synonyms[0].source) if synonyms else (None, Source.DEFAULT)
        entries.append(Entry(setting, value, source, not setting.dynamic, synonyms))
    return entries


def all_brokers_entries(image: ClusterImage) -> list[Entry]:
    """What is set for every node at once."""
    stored = valid_only(BROKER_SETTINGS, image.overrides_of(None).items())
    return [
        Entry(
            BROKER_SETTINGS[name],
            text,
            Source.ALL_BROKERS,
            not BROKER_SETTINGS[name].dynamic,
            [Synonym(name, text, Source.ALL_BROKERS)],
        )
        for name, text in sorted(stored.items())
    ]


_Layers = list[tuple[Source, Mapping[str, str]]]


def _layers(image: ClusterImage, broker_id: int) -> _Layers:
    """Where a broker setting may stand, strongest first."""
    own = valid_only(BROKER_SETTINGS, image.overrides_of(broker_id).items())
    everywhere = valid_only(BROKER_SETTINGS, image.overrides_of(None).items())
    static = image.settings if broker_id == image.node_id else {}
    return [(Source.BROKER, own), (Source.ALL_BROKERS, everywhere), (Source.STATIC, static)]


def _broker_synonyms(setting: Setting, layers: _Layers) -> Iterator[Synonym]:
    for source, texts in layers:
        if setting.name in texts:
            yield Synonym(setting.name, texts[setting.name], source)
    default = render(setting.default)
    if default is not None:
        yield Synonym(setting.name, default, Source.DEFAULT)


def _topic_entry(setting: Setting, override: str | None, layers: _Layers) -> Entry:
    inherited = []
    for name, factor in setting.inherits:
        inherited += [(synonym, factor) for synonym in _broker_synonyms(BROKER_SETTINGS[name], layers)]
    synonyms = [synonym for synonym, _ in inherited]
    default = render(setting.default)
    if not synonyms and default is not None:
        synonyms.append(Synonym(setting.name, default, Source.DEFAULT))
    if override is not None:
        synonyms.insert(0, Synonym(setting.name, override, Source.TOPIC))
        return Entry(setting, override, Source.TOPIC, False, synonyms)
    if not inherited:
        return Entry(setting, default, Source.DEFAULT, False, synonyms)
    strongest, factor = inherited[0]
    return Entry(setting, _converted(strongest, factor), strongest.source, False, synonyms)


def _converted(synonym: Synonym, factor: int) -> str:
    if factor == 1:
        return synonym.value
    value = parse(BROKER_SETTINGS[synonym.name], synonym.value)
    assert isinstance(value, int)
    return str(value if value < 0 else value * factor)
