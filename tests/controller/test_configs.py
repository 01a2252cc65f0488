"""Edits of settings: set, delete, append, subtract, replace all."""

import pytest

from headrace.controller.configs import Edit, EditKind, edited_broker, edited_topic, replacement
from headrace.controller.topics import Refusal
from headrace.core.cluster import BrokerOverrides, ClusterImage, Topic, TopicPut
from headrace.errors import ErrorCode

SET, DELETE, APPEND, SUBTRACT = EditKind
THROTTLED = "leader.replication.throttled.replicas"


def image_with(overrides: dict[str, str], settings: dict[str, str] | None = None) -> tuple[ClusterImage, Topic]:
    image = ClusterImage(1, settings or {})
    image.apply([TopicPut("t", bytes(16), [], [], 3, overrides=overrides, overrides_rev=3)])
    return image, image.topics["t"]


def after(overrides: dict[str, str], *edits: Edit) -> dict[str, str] | ErrorCode:
    outcome = edited_topic(*image_with(overrides), edits)
    return outcome.code if isinstance(outcome, Refusal) else outcome


def test_settings_are_set_and_deleted() -> None:
    assert after({"segment.bytes": "99"}, Edit("retention.ms", SET, "5")) == {
        "segment.bytes": "99",
        "retention.ms": "5",
    }
    assert after({"segment.bytes": "99"}, Edit("segment.bytes", DELETE, None)) == {}
    assert after({}, Edit("segment.bytes", DELETE, None)) == {}


def test_lists_are_appended_to_and_subtracted_from() -> None:
    assert after({THROTTLED: "0:1"}, Edit(THROTTLED, APPEND, "1:1, 0:1")) == {THROTTLED: "0:1,1:1"}
    assert after({THROTTLED: "0:1,1:1,2:1"}, Edit(THROTTLED, SUBTRACT, "0:1,2:1")) == {THROTTLED: "1:1"}


def test_appending_to_what_is_not_set_begins_with_the_default() -> None:
    assert after({}, Edit("cleanup.policy", APPEND, "delete")) == {"cleanup.policy": "delete"}
    assert after({}, Edit("cleanup.policy", APPEND, "compact")) == {"cleanup.policy": "delete,compact"}
    assert after({}, Edit("cleanup.policy", APPEND, "other")) is ErrorCode.INVALID_CONFIG
    assert after({}, Edit("cleanup.policy", SUBTRACT, "delete")) is ErrorCode.INVALID_CONFIG  # nothing would be left


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ([Edit("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([Edit("retention.ms", SET, "1"), Edit("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([Edit("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([Edit("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([Edit("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ([Edit("retention", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([Edit("retention", DELETE, None)], ErrorCode.INVALID_CONFIG),
        (
            [Edit("min.compaction.lag.ms", SET, "9"), Edit("max.compaction.lag.ms", SET, "8")],
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
def test_a_bad_edit_is_refused(edits: list[Edit], code: ErrorCode) -> None:
    assert after({}, *edits) is code


def test_an_override_that_this_program_cannot_read_survives_edits_and_can_be_deleted() -> None:
    stored = {"from.the.future": "x"}
    assert after(stored, Edit("retention.ms", SET, "5")) == stored | {"retention.ms": "5"}
    assert after(stored, Edit("from.the.future", DELETE, None)) == {}


def test_replacing_drops_what_is_not_named() -> None:
    current = {"segment.bytes": "99", "retention.ms": "5"}
    edits = replacement(current, [("retention.ms", "6"), ("flush.ms", "7")])
    assert after(current, *edits) == {"retention.ms": "6", "flush.ms": "7"}


def broker_after(broker_id: int | None, *edits: Edit) -> dict[str, str] | Refusal:
    image, _ = image_with({}, {"socket.request.max.bytes": "4096"})
    image.apply([BrokerOverrides(None, {"log.retention.ms": "3"}, 1)])
    return edited_broker(image, broker_id, edits)


def test_dynamic_settings_of_a_node_and_of_all_nodes_are_kept_apart() -> None:
    assert broker_after(None, Edit("max.connections", SET, "5")) == {"log.retention.ms": "3", "max.connections": "5"}
    assert broker_after(1, Edit("max.connections", SET, "5")) == {"max.connections": "5"}


def test_what_is_fixed_at_start_cannot_be_changed() -> None:
    refusal = broker_after(1, Edit("num.partitions", SET, "5"))
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert "num.partitions" in refusal.message


@pytest.mark.parametrize("edit", [Edit("max.connections", SET, "0"), Edit("max.connection", SET, "1")])
def test_a_bad_broker_setting_is_refused(edit: Edit) -> None:
    refusal = broker_after(None, edit)
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.INVALID_CONFIG
