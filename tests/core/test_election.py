"""Elections: who leads, which entries go, and what no election ever does."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.cluster import (
    NO_LEADER,
    BrokerPut,
    ClusterImage,
    IsrMember,
    OfflineReplicas,
    PartitionRecord,
    RegisteredBroker,
)
from headrace.core.election import (
    Election,
    elect,
    elect_preferred,
    elect_unclean,
    is_intact,
    is_preferred_available,
    kept_entries,
    move_from,
)
from headrace.errors import ErrorCode

T = bytes(16)


def broker(broker_id: int, epoch: int, since: int | None = None, last: int = -1, leaving: bool = False) -> BrokerPut:
    intact_since = epoch if since is None else since
    return BrokerPut(
        RegisteredBroker(broker_id, epoch, "h", 9092, None, leaving, intact_since=intact_since, last_epoch=last)
    )


def nodes(*changes: BrokerPut | OfflineReplicas) -> ClusterImage:
    image = ClusterImage(0, {})
    image.apply(changes)
    return image


def led(leader: int, *isr: tuple[int, int], replicas: tuple[int, ...] = (0, 1, 2)) -> PartitionRecord:
    members = tuple(IsrMember(*member) for member in isr)
    return PartitionRecord(replicas, members, leader, leader_epoch=5, partition_epoch=9)


def elected(record: PartitionRecord, image: ClusterImage, unclean: bool = False) -> Election:
    result = elect(record, T, 0, image, unclean)
    assert result is not None
    return result


def test_an_entry_is_intact_when_nothing_was_lost_since_the_registration_that_it_names() -> None:
    image = nodes(broker(0, 50, since=20, last=40), broker(1, 60))
    assert [is_intact(IsrMember(0, e), image.brokers) for e in (19, 20, 40, 41, 50)] == [False, True, True, False, True]
    assert [is_intact(IsrMember(1, e), image.brokers) for e in (10, 60)] == [False, True]
    assert is_intact(IsrMember(2, 3), image.brokers)


def test_a_leader_that_is_fine_stays_and_nothing_is_written() -> None:
    assert elect(led(1, (0, 10), (1, 11)), T, 0, nodes(broker(0, 10), broker(1, 11)), False) is None


def test_the_next_leader_is_the_first_valid_one_in_replica_order_and_the_isr_stays() -> None:
    image = nodes(broker(1, 11), broker(2, 12))
    record, kind = elected(led(0, (2, 12), (0, 10), (1, 11)), image)
    assert (record.leader, record.leader_epoch, record.partition_epoch, kind) == (1, 6, 10, "clean")
    assert record.isr_ids == [2, 0, 1]


def test_a_leader_that_registered_again_leads_under_a_new_epoch_and_entry() -> None:
    record, kind = elected(led(0, (0, 10)), nodes(broker(0, 30, since=10, last=10)))
    assert (record.leader, record.leader_epoch, record.isr, kind) == (0, 6, (IsrMember(0, 30),), "clean")


def test_an_election_renews_the_entries_of_members_that_are_intact() -> None:
    image = nodes(broker(1, 31, since=11, last=11), broker(2, 32, since=12, last=12))
    assert elected(led(0, (0, 10), (1, 11), (2, 12)), image).record.isr == ((0, 10), (1, 31), (2, 32))


def test_an_entry_that_is_not_intact_goes_while_an_intact_one_remains_even_a_dead_one() -> None:
    whole_is_dead = nodes(broker(1, 31))
    record, kind = elected(led(0, (0, 10), (1, 11)), whole_is_dead)
    assert (record.leader, record.isr, kind) == (NO_LEADER, ((0, 10),), "none")
    back = nodes(broker(1, 31), broker(0, 40, since=10, last=10))
    assert elected(record, back).record.leader == 0


def test_handling_a_death_and_a_rebirth_event_by_event_ends_like_handling_them_at_once() -> None:
    first = elected(led(0, (0, 10), (1, 11)), nodes(broker(1, 11))).record  # 0's lease ends first
    assert first.leader == 1
    dead_first = elected(first, nodes(broker(1, 31))).record
    reborn_first = elected(led(0, (0, 10), (1, 11)), nodes(broker(0, 10), broker(1, 31)))
    assert (reborn_first.kind, reborn_first.record.leader) == ("dropped", 0)
    assert dead_first.isr == reborn_first.record.isr == ((0, 10),)
    assert dead_first.leader == NO_LEADER


def test_with_no_intact_entry_the_first_live_member_leads_alone() -> None:
    image = nodes(broker(1, 31), broker(2, 32))
    record, kind = elected(led(2, (2, 12), (1, 11)), image)
    assert (record.leader, record.isr, kind, record.recovering) == (1, ((1, 31),), "not intact", False)


def test_without_a_valid_replica_there_is_no_leader_and_the_isr_is_kept() -> None:
    image = nodes(broker(2, 12))
    record, kind = elected(led(0, (0, 10), (1, 11)), image)
    assert (record.leader, record.leader_epoch, record.isr_ids, kind) == (NO_LEADER, 6, [0, 1], "none")
    assert elect(record, T, 0, image, False) is None


def test_an_unclean_election_takes_the_first_live_replica_and_marks_the_partition_as_recovering() -> None:
    record, kind = elected(led(0, (0, 10)), nodes(broker(2, 12)), unclean=True)
    assert (record.leader, record.isr, record.recovering, kind) == (2, ((2, 12),), True, "unclean")


def test_a_leader_that_is_shutting_down_is_not_forced_out() -> None:
    image = nodes(broker(0, 10, leaving=True), broker(1, 11))
    assert elect(led(0, (0, 10), (1, 11)), T, 0, image, True) is None
    moved = move_from(led(0, (0, 10), (1, 11)), T, 0, image, leaving=0)
    assert moved is not None and (moved.leader, moved.isr_ids, moved.leader_epoch) == (1, [0, 1], 6)
    assert move_from(led(0, (0, 10)), T, 0, image, leaving=0) is None
    assert move_from(led(1, (0, 10), (1, 11)), T, 0, image, leaving=0) is None


def test_a_leader_with_an_announced_dead_directory_is_replaced() -> None:
    image = nodes(broker(0, 10), broker(1, 11), OfflineReplicas(0, frozenset({(T, 0)})))
    assert elected(led(0, (0, 10), (1, 11)), image).record.leader == 1
    assert elect(led(0, (0, 10), (1, 11)), T, 1, image, False) is None


def test_a_preferred_election_never_wanders_to_the_second_replica() -> None:
    image = nodes(broker(0, 10), broker(1, 11), broker(2, 12))
    out_of_isr = led(2, (1, 11), (2, 12))
    assert elect_preferred(out_of_isr, T, 0, image) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert not is_preferred_available(out_of_isr, T, 0, image)
    assert elect_preferred(led(0, (0, 10)), T, 0, image) == ErrorCode.ELECTION_NOT_NEEDED
    moved = elect_preferred(led(2, (0, 10), (2, 12)), T, 0, image)
    assert isinstance(moved, PartitionRecord) and (moved.leader, moved.leader_epoch) == (0, 6)
    assert is_preferred_available(led(2, (0, 10), (2, 12)), T, 0, image)


def test_an_unclean_election_on_request_says_when_it_is_not_needed_or_impossible() -> None:
    assert elect_unclean(led(0, (0, 10)), T, 0, nodes(broker(0, 10))) == ErrorCode.ELECTION_NOT_NEEDED
    assert elect_unclean(led(-1, (0, 10)), T, 0, nodes()) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    result = elect_unclean(led(-1, (0, 10)), T, 0, nodes(broker(1, 11)))
    assert isinstance(result, Election) and result.record.leader == 1


epochs = st.integers(1, 6)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[PartitionRecord, ClusterImage]:
    changes: list[BrokerPut | OfflineReplicas] = []
    for broker_id in draw(st.sets(st.integers(0, 3))):
        epoch = draw(epochs)
        since, last = draw(st.integers(1, epoch)), draw(st.integers(-1, epoch - 1))
        changes.append(broker(broker_id, epoch, since, last, draw(st.booleans())))
        if draw(st.booleans()):
            changes.append(OfflineReplicas(broker_id, frozenset({(T, draw(st.integers(0, 1)))})))
    replicas = tuple(draw(st.permutations([0, 1, 2, 3]))[: draw(st.integers(1, 4))])
    ids = draw(st.lists(st.sampled_from(replicas), unique=True, min_size=1))
    isr = tuple(IsrMember(member, draw(epochs)) for member in ids)
    leader = draw(st.sampled_from([NO_LEADER, *ids]))
    return PartitionRecord(replicas, isr, leader, 5, 9), nodes(*changes)


@given(worlds(), st.booleans())
def test_no_election_breaks_what_always_holds(world: tuple[PartitionRecord, ClusterImage], unclean: bool) -> None:
    record, image = world
    result = elect(record, T, 0, image, unclean)
    if result is None:
        return
    after, kind = result
    assert after.partition_epoch == record.partition_epoch + 1
    assert after.isr and set(after.isr_ids) <= set(after.replicas)
    # No second thought: what was decided stands until something changes.
    assert elect(after, T, 0, image, unclean) is None
    if after.leader != NO_LEADER:
        assert IsrMember(after.leader, image.brokers[after.leader].epoch) in after.isr
        assert image.is_reachable(after.leader, T, 0)
    assert (after.leader_epoch > record.leader_epoch) == (kind != "dropped")
    gone = {member for member in record.isr if member.broker_id not in after.isr_ids}
    if kind in ("clean", "none", "dropped"):
        assert after.recovering == record.recovering
        assert not any(is_intact(member, image.brokers) for member in gone)
        assert set(after.isr_ids) == {member.broker_id for member in kept_entries(record, image)}
    if kind == "clean":
        chosen = next(member for member in record.isr if member.broker_id == after.leader)
        assert is_intact(chosen, image.brokers)
    if kind == "not intact":
        assert not any(is_intact(member, image.brokers) for member in record.isr)
        assert after.leader in record.isr_ids
    assert (kind == "unclean") <= unclean


@given(worlds())
def test_a_voluntary_move_loses_no_intact_member(world: tuple[PartitionRecord, ClusterImage]) -> None:
    record, image = world
    for moved in (move_from(record, T, 0, image, record.leader), elect_preferred(record, T, 0, image)):
        if isinstance(moved, PartitionRecord):
            assert image.is_live(moved.leader, T, 0)
            assert set(moved.isr_ids) == {member.broker_id for member in kept_entries(record, image)}
            assert (moved.leader_epoch, moved.partition_epoch) == (6, 10)
