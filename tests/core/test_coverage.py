"""KIP-1303: replicas with little on their own disks come last among candidates, and nobody is ever excluded."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import BrokerConfig, TopicConfig
from headrace.core.cluster import NO_LEADER, ClusterImage, PartitionRecord
from headrace.core.coverage import (
    CoverageRecord,
    LocalCoverage,
    ReplicaCoverage,
    Thresholds,
    counting,
    edge_of,
    is_thin,
    order,
    thin_replicas,
    thresholds_of,
)
from headrace.core.election import (
    elect,
    elect_preferred,
    elect_unclean,
    is_held_back,
    is_preferred_available,
    move_from,
)
from headrace.errors import ErrorCode
from headrace.settings import InvalidSetting
from tests.core.test_election import T, broker, led, nodes

NOW = 1_000_000
HOUR = 3_600_000
FRESH = LocalCoverage(500, NOW, 0, False)
"""Started from the tier just now: nothing below 500 is local, and nothing above it is there yet."""
BY_TIME = Thresholds(HOUR, -1)
BY_BYTES = Thresholds(-1, 1_000)
BOTH = Thresholds(HOUR, 1_000)


def all_live() -> ClusterImage:
    return nodes(broker(1, 11), broker(2, 12), broker(3, 13))


def three(leader: int, *isr: int) -> PartitionRecord:
    return led(leader, *((member, 10 + member) for member in isr or (1, 2, 3)), replicas=(1, 2, 3))


def leader_after(record: PartitionRecord, image: ClusterImage, *thin: int) -> int:
    elected = elect(record, T, 0, image, False, frozenset(thin))
    return record.leader if elected is None else elected.record.leader


def preferred(record: PartitionRecord, *thin: int) -> int | ErrorCode:
    moved = elect_preferred(record, T, 0, all_live(), frozenset(thin))
    return moved if isinstance(moved, ErrorCode) else moved.leader


# Who is thin.


def test_by_time_a_replica_is_thin_until_its_own_log_reaches_back_far_enough() -> None:
    """T1303-9, T1303-15, T1303-16: no record and no timestamp of one takes part in this."""
    assert is_thin(FRESH, 0, BY_TIME, NOW + HOUR - 1)
    assert not is_thin(FRESH, 0, BY_TIME, NOW + HOUR)


def test_by_bytes_alone_time_does_not_count() -> None:
    """T1303-3."""
    assert is_thin(FRESH._replace(local_bytes=999), 0, BY_BYTES, NOW + 100 * HOUR)
    assert not is_thin(FRESH._replace(local_bytes=1_000), 0, BY_BYTES, NOW)


def test_where_both_are_set_either_suffices() -> None:
    """T1303-4."""
    assert is_thin(FRESH, 0, BOTH, NOW)
    assert not is_thin(FRESH._replace(local_bytes=1_000), 0, BOTH, NOW)
    assert not is_thin(FRESH, 0, BOTH, NOW + HOUR)


def test_a_replica_at_its_own_local_retention_has_all_that_it_can_have() -> None:
    """T1303-10, T1303-17: a threshold above local retention holds nobody back for ever."""
    assert not is_thin(FRESH._replace(at_local_retention=True), 0, BOTH, NOW)


def test_a_replica_that_lacks_nothing_is_not_thin() -> None:
    assert not is_thin(FRESH, 500, BOTH, NOW)
    assert is_thin(FRESH, 499, BOTH, NOW)
    assert is_thin(FRESH, -1, BOTH, NOW), "where the log start is not known, nobody is known to be complete"


def test_what_is_not_known_or_not_wanted_never_counts_against_a_replica() -> None:
    assert not is_thin(None, 0, BOTH, NOW)
    assert not is_thin(FRESH, 0, None, NOW)


@pytest.mark.parametrize(
    ("cluster", "topic", "expected"),
    [
        ("3600000", None, Thresholds(HOUR, -1)),
        ("3600000", "-1", None),
        ("3600000", "0", None),
        ("-1", "5", Thresholds(5, -1)),
        ("-1", None, None),
    ],
)
def test_a_topics_own_threshold_wins_over_the_clusters_also_to_turn_it_off(
    cluster: str, topic: str | None, expected: Thresholds | None
) -> None:
    """T1303-7."""
    name = "leader.election.eligible.local.log.ms"
    overrides = {"remote.storage.enable": "true"} | ({} if topic is None else {name: topic})
    config = TopicConfig.resolve(BrokerConfig.parse({name: cluster}), overrides)
    assert thresholds_of(config) == expected
    assert thresholds_of(replace(config, remote_storage_enable=False)) is None


@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_thresholds_below_minus_one_are_invalid(unit: str) -> None:
    name = f"leader.election.eligible.local.log.{unit}"
    with pytest.raises(InvalidSetting, match="-1"):
        BrokerConfig.parse({name: "-2"})
    with pytest.raises(InvalidSetting, match="-1"):
        TopicConfig.resolve(BrokerConfig(), {name: "-2"})


@pytest.mark.parametrize(
    "name",
    ["leader.election.prefer.early.local.log.start.offset", "leader.election.local.log.start.offset.threshold"],
)
def test_the_names_of_the_first_draft_are_unknown(name: str) -> None:
    """T1303-19; the code for it is that of every unknown setting."""
    with pytest.raises(InvalidSetting, match="Unknown"):
        BrokerConfig.parse({name: "1"})
    with pytest.raises(InvalidSetting, match="Unknown"):
        TopicConfig.resolve(BrokerConfig(), {name: "1"})


# What is remembered of replicas.


def test_what_a_node_said_before_it_lost_its_log_does_not_count() -> None:
    record = CoverageRecord(0, tuple(ReplicaCoverage(n, 10 + n, FRESH) for n in (1, 2, 3)))
    image = nodes(broker(1, 40, since=11, last=11), broker(2, 41))  # 1 came back whole, 2 did not, 3 is away
    assert counting(record, image.brokers).keys() == {1, 3}
    assert thin_replicas(record, (1, 2, 3), image.brokers, BOTH, NOW) == {1, 3}
    assert thin_replicas(record, (1, 2), image.brokers, BOTH, NOW) == {1}
    assert thin_replicas(record, (1, 2, 3), image.brokers, None, NOW) == frozenset()
    assert thin_replicas(None, (1, 2, 3), image.brokers, BOTH, NOW) == frozenset()


def test_reports_are_due_on_edges_and_not_for_growth_or_time() -> None:
    """T1303-20: a threshold or a retention that changes makes one due too."""
    before = edge_of(FRESH, 0, BOTH)
    grown = FRESH._replace(local_bytes=999, coverage_since_ms=NOW - 1)
    assert edge_of(grown, 0, BOTH) == before
    assert edge_of(FRESH._replace(local_bytes=1_000), 0, BOTH) != before
    assert edge_of(FRESH._replace(local_log_start=501), 0, BOTH) != before
    assert edge_of(FRESH._replace(at_local_retention=True), 0, BOTH) != before
    assert edge_of(FRESH, 500, BOTH) != before
    assert edge_of(FRESH, 0, Thresholds(HOUR, 2_000)) != before
    assert edge_of(FRESH, 0, BOTH, (1, 1)) != before


# The order.


def test_without_thin_replicas_the_order_is_the_assignment_itself() -> None:
    """T1303-6, T1303-18."""
    assignment = (3, 1, 2)
    assert order(assignment, ()) is assignment
    assert order(assignment, frozenset()) is assignment


def test_replicas_that_are_not_thin_come_first_and_both_groups_keep_their_order() -> None:
    """T1303-8."""
    for assignment in permutations((1, 2, 3, 4)):
        for thin in ({1}, {2, 3}, {1, 2, 3, 4}, {4, 1}, {9}):
            ordered = order(assignment, thin)
            assert ordered == (*(r for r in assignment if r not in thin), *(r for r in assignment if r in thin))


# Elections.


def test_a_thin_replica_is_passed_over() -> None:
    """T1303-1."""
    image = nodes(broker(1, 11), broker(3, 13))
    assert leader_after(three(2), image, 1) == 3
    assert leader_after(three(2), image) == 1


def test_a_thin_replica_that_is_alone_leads_at_once() -> None:
    """T1303-5."""
    assert leader_after(three(2), nodes(broker(1, 11)), 1) == 1
    assert leader_after(three(2), nodes(broker(1, 11), broker(3, 13)), 1, 2, 3) == 1


def test_a_leader_that_lives_is_not_demoted_for_being_thin() -> None:
    assert leader_after(three(1), all_live(), 1) == 1


def test_an_unclean_election_keeps_the_plain_order() -> None:
    image = nodes(broker(1, 11), broker(3, 13))
    elected = elect(three(2, 2), T, 0, image, True, frozenset({1}))
    assert elected is not None and (elected.kind, elected.record.leader) == ("unclean", 1)
    asked = elect_unclean(three(2, 2), T, 0, image)
    assert not isinstance(asked, ErrorCode) and asked.record.leader == 1


def test_whoever_shuts_down_hands_over_to_one_that_is_not_thin() -> None:
    moved = move_from(three(2), T, 0, all_live(), 2, frozenset({1}))
    assert moved is not None and moved.leader == 3
    alone = move_from(three(2), T, 0, all_live(), 2, frozenset({1, 3}))
    assert alone is not None and alone.leader == 1


def test_a_first_replica_that_leads_needs_no_election_thin_or_not() -> None:
    assert preferred(three(1), 1) is ErrorCode.ELECTION_NOT_NEEDED
    assert not is_preferred_available(three(1), T, 0, all_live(), frozenset({1}))


def test_a_thin_first_replica_waits_and_leadership_does_not_move_twice() -> None:
    """T1303-13, and T1303-2 for its end."""
    assert preferred(three(3), 1) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert is_held_back(three(3), T, 0, all_live(), frozenset({1}))
    assert preferred(three(3)) == 1
    assert not is_held_back(three(3), T, 0, all_live(), frozenset())


def test_a_thin_leader_gives_way_to_one_that_is_not() -> None:
    """T1303-14."""
    assert preferred(three(3), 1, 3) == 2
    assert preferred(three(3), 3) == 1


def test_where_all_are_thin_the_first_replica_leads_as_ever() -> None:
    assert preferred(three(3), 1, 2, 3) == 1
    assert preferred(three(3, 1, 3), 1, 3) == 1, "2 is not in sync: it cannot be preferred to anybody"
    assert not is_held_back(three(3, 1, 3), T, 0, all_live(), frozenset({1, 3}))


ids = st.sampled_from((1, 2, 3))


@given(
    assignment=st.permutations((1, 2, 3)),
    leader=st.sampled_from((NO_LEADER, 1, 2, 3)),
    isr=st.sets(ids, min_size=1),
    live=st.sets(ids),
    thin=st.frozensets(ids),
    unclean=st.booleans(),
)
def test_nobody_is_left_without_a_leader_and_nothing_but_the_choice_differs(
    assignment: list[int], leader: int, isr: set[int], live: set[int], thin: frozenset[int], unclean: bool
) -> None:
    """T1303-5: leaderless exactly where it would be without this, and never led by one that is not valid."""
    record = led(leader, *((member, 10 + member) for member in sorted(isr)), replicas=tuple(assignment))
    image = nodes(*(broker(n, 10 + n) for n in sorted(live)))
    plain = elect(record, T, 0, image, unclean)
    tiered = elect(record, T, 0, image, unclean, thin)
    assert (plain is None) == (tiered is None)
    if plain is None or tiered is None:
        return
    assert plain.kind == tiered.kind
    assert replace_leader(plain.record) == replace_leader(tiered.record)
    if plain.kind == "clean":
        valid = isr & live
        assert tiered.record.leader in valid
        assert tiered.record.leader not in thin or valid <= thin or tiered.record.leader == leader
    else:
        assert plain.record == tiered.record


def replace_leader(record: PartitionRecord) -> tuple[object, ...]:
    no_leader = record.leader == NO_LEADER
    return record.replicas, record.isr_ids, record.leader_epoch, record.partition_epoch, record.recovering, no_leader
