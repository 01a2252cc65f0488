"""Offsets as Spark's checkpoint holds them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import TopicPartition
from headrace.spark.offsets import StreamOffset, from_json

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "t"]), st.integers(0, 12))
offsets = st.dictionaries(partitions, st.integers(0, 1 << 62), max_size=8)
ID = bytes(range(16))


@given(offsets, offsets, st.booleans(), st.frozensets(st.sampled_from(["a", "b", "t"])))
def test_an_offset_survives_its_text(
    at: dict[TopicPartition, int], begins: dict[TopicPartition, int], first: bool, gone: frozenset[str]
) -> None:
    topics = {one.topic for one in at}
    told = StreamOffset(at, dict.fromkeys(topics, ID), dict.fromkeys(at, 3), begins, first, gone)
    assert from_json(json.loads(json.dumps(told.to_json()))) == told


@given(offsets)
def test_the_text_does_not_depend_on_the_order_in_which_partitions_came(at: dict[TopicPartition, int]) -> None:
    backwards = dict(reversed(at.items()))
    assert json.dumps(StreamOffset(at).to_json()) == json.dumps(StreamOffset(backwards).to_json())


def test_plain_offsets_are_those_of_sparks_own_connector() -> None:
    at = {TopicPartition("t", 10): 5, TopicPartition("t", 2): 7}
    assert from_json(json.loads('{"t":{"2":7,"10":5}}')).offsets == at
    assert json.dumps(StreamOffset(at).to_json(), separators=(",", ":")) == '{"t":{"10":5,"2":7}}'


@pytest.mark.parametrize("told", [{"t": 5}, {"t": {"x": 5}}, {"t": {"0": None}}, {"@log": {"t": {"id": "zz"}}}])
def test_what_is_no_offset_is_refused(told: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is no offset of this source"):
        from_json(told)
