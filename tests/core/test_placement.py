"""Where replicas of new partitions go."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.placement import place


def test_leaders_go_round_the_brokers() -> None:
    assert [replicas[0] for replicas in place(range(5), 1, [1, 2, 3], start=1)] == [2, 3, 1, 2, 3]


def test_with_each_round_the_followers_of_a_leader_move_on() -> None:
    placed = place(range(12), 2, [0, 1, 2, 3], start=0)
    assert [follower for leader, follower in placed if leader == 0] == [1, 2, 3]


@given(st.integers(1, 8), st.integers(1, 60), st.integers(0, 2**16), st.data())
def test_replicas_are_distinct_and_leaders_are_even(
    brokers: int, partitions: int, start: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, brokers))
    placed = place(range(partitions), factor, list(range(10, 10 + brokers)), start)
    assert all(len(replicas) == len(set(replicas)) == factor for replicas in placed)
    led = Counter(replicas[0] for replicas in placed)
    assert max(led.values()) - min(led.get(broker, 0) for broker in range(10, 10 + brokers)) <= 1


def test_added_partitions_continue_where_the_topic_ended() -> None:
    whole = place(range(7), 2, [1, 2, 3], start=5)
    assert place(range(3, 7), 2, [1, 2, 3], start=5) == whole[3:]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), st.integers(1, 5), st.integers(0, 50))
def test_replicas_are_on_as_many_racks_as_can_be(racks_of: list[str], factor: int, start: int) -> None:
    brokers = list(range(len(racks_of)))
    racks: dict[int, str | None] = dict(enumerate(racks_of))
    factor = min(factor, len(brokers))
    placed = place(range(2 * len(brokers)), factor, brokers, start, racks)
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks_of)))
    led = Counter(replicas[0] for replicas in placed)
    assert set(led.values()) == {2}


def test_racks_do_not_count_while_a_broker_has_none() -> None:
    racks = {1: "a", 2: None, 3: "b"}
    assert place(range(9), 2, [1, 2, 3], 4, racks) == place(range(9), 2, [1, 2, 3], 4)


def test_followers_of_a_leader_are_spread_over_the_other_racks() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b"}
    placed = place(range(40), 2, [0, 1, 2, 3], 0, racks)
    assert {follower for leader, follower in placed if leader == 0} == {2, 3}
