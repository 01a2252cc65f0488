"""What settings a resource has after an edit. Pure: nothing here writes."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from headrace.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, TopicConfig, inherit, valid_only
from headrace.controller.tier_rules import tier_refusal
from headrace.controller.topics import Refusal
from headrace.core.cluster import ClusterImage, Topic
from headrace.errors import ErrorCode
from headrace.settings import InvalidSetting, Kind, Setting, Value, find, parse, render


class EditKind(IntEnum):
    """Numbers are those of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Edit(NamedTuple):
    name: str
    kind: int
    text: str | None


Edits = Sequence[Edit]


def replacement(current: Mapping[str, str], settings: Sequence[tuple[str, str | None]]) -> list[Edit]:
    """AlterConfigs as edits: what is not named falls back to its default."""
    named = {name for name, _ in settings}
    dropped = [Edit(name, EditKind.DELETE, None) for name in current if name not in named]
    return dropped + [Edit(name, EditKind.SET, text) for name, text in settings]


def edited_topic(image: ClusterImage, topic: Topic, edits: Edits) -> dict[str, str] | Refusal:
    def default(setting: Setting) -> Value:
        return inherit(setting, image.broker_config)

    overrides = _edited(topic.overrides, edits, TOPIC_SETTINGS, "topic", default)
    if isinstance(overrides, Refusal):
        return overrides
    try:
        config = TopicConfig.resolve(image.broker_config, valid_only(TOPIC_SETTINGS, overrides.items()))
    except InvalidSetting as invalid:
        return Refusal(ErrorCode.INVALID_CONFIG, str(invalid))
    if (wrong := tier_refusal(image.broker_config, topic.config, config)) is not None:
        return Refusal(ErrorCode.INVALID_CONFIG, wrong)
    return overrides


def edited_broker(image: ClusterImage, broker_id: int | None, edits: Edits) -> dict[str, str] | Refusal:
    """Settings of one node, or of all (`broker_id` None)."""

    def default(setting: Setting) -> Value:
        return setting.default

    current = image.overrides_of(broker_id)
    fixed = [edit.name for edit in edits if edit.name in BROKER_SETTINGS and not BROKER_SETTINGS[edit.name].dynamic]
    if fixed:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"Cannot change while the node runs, only at its start: {', '.join(fixed)}"
        )
    overrides = _edited(current, edits, BROKER_SETTINGS, "broker", default)
    if isinstance(overrides, Refusal):
        return overrides
    layers = {layer: image.overrides_of(layer) for layer in (None, image.node_id)} | {broker_id: overrides}
    try:
        BrokerConfig.parse(
            image.settings, *(valid_only(BROKER_SETTINGS, layers[layer].items()) for layer in (None, image.node_id))
        )
    except InvalidSetting as invalid:
        return Refusal(ErrorCode.INVALID_CONFIG, str(invalid))
    return overrides


def _edited(
    current: Mapping[str, str],
    edits: Edits,
    known: Mapping[str, Setting],
    what: str,
    default: Callable[[Setting], Value],
) -> dict[str, str] | Refusal:
    names = [edit.name for edit in edits]
    if len(set(names)) != len(names):
        return Refusal(ErrorCode.INVALID_REQUEST, "A setting is named twice")
    after = dict(current)
    for edit in edits:
        if edit.kind == EditKind.DELETE and edit.name in current:
            del after[edit.name]  # also one that this program does not know
            continue
        try:
            setting = find(known, edit.name, what)
            if edit.kind == EditKind.DELETE:
                continue
            if edit.text is None:
                return Refusal(ErrorCode.INVALID_REQUEST, f"Setting {edit.name!r} has no value")
            text = _edited_text(setting, edit.kind, after.get(edit.name), edit.text, default)
            if isinstance(text, Refusal):
                return text
            parse(setting, text)
        except InvalidSetting as invalid:
            return Refusal(ErrorCode.INVALID_CONFIG, str(invalid))
        after[edit.name] = text
    return after


def _edited_text(
    setting: Setting, kind: int, current: str | None, text: str, default: Callable[[Setting], Value]
) -> str | Refusal:
    if kind == EditKind.SET:
        return text
    if kind not in (EditKind.APPEND, EditKind.SUBTRACT):
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operation {kind} on setting {setting.name!r}")
    if setting.kind is not Kind.LIST:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Setting {setting.name!r} is no list: it cannot be appended to or subtracted from",
        )
    before = _words(render(default(setting)) if current is None else current)
    named = _words(text)
    if kind == EditKind.APPEND:
        return ",".join(dict.fromkeys(before + named))
    return ",".join(word for word in before if word not in named)


def _words(text: str | None) -> list[str]:
    return [word for word in (part.strip() for part in (text or "").split(",")) if word]
