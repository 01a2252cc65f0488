"""The cluster image: what each change does to it, and what it tells those who act on it."""

from headrace.core.cluster import (
    NO_LEADER,
    BrokerGone,
    BrokerOverrides,
    BrokerPut,
    BrokerRecord,
    Change,
    ClusterImage,
    ClusterNamed,
    Controller,
    ControllerIs,
    Diff,
    IsrMember,
    OfflineReplicas,
    PartitionPut,
    PartitionRecord,
    RegisteredBroker,
    TopicGone,
    TopicOverrides,
    TopicPut,
    registered,
)

ID = bytes(range(16))
OTHER_ID = bytes(range(16, 32))
RECORD = PartitionRecord(replicas=(1,), isr=(IsrMember(1, 7),), leader=1)


def image_with(*changes: Change, settings: dict[str, str] | None = None) -> ClusterImage:
    image = ClusterImage(1, settings or {})
    image.apply(changes)
    return image


def created(name: str = "t", topic_id: bytes = ID, count: int = 2) -> TopicPut:
    return TopicPut(name, topic_id, [RECORD] * count, [5] * count, 5)


def test_a_created_topic_is_found_by_name_and_by_id() -> None:
    image = ClusterImage(1, {})
    diff = image.apply([created()])
    assert image.topics["t"] is image.topics_by_id[ID] is diff.topics_created[0]
    assert image.partition("t", 1) == RECORD
    assert image.partition("t", 2) is image.partition("t", -1) is image.partition("u", 0) is None
    assert image.partitions_count == 2
    assert diff == Diff(topics_created=[image.topics["t"]])


def test_a_topic_of_the_same_name_with_another_id_replaces_the_old_one() -> None:
    image = image_with(created())
    old = image.topics["t"]
    diff = image.apply([created(topic_id=OTHER_ID)])
    assert diff.topics_deleted == [old]
    assert diff.topics_created == [image.topics["t"]]
    assert list(image.topics_by_id) == [OTHER_ID]


def test_a_topic_that_grows_tells_its_new_partitions_only() -> None:
    image = image_with(created())
    topic = image.topics["t"]
    diff = image.apply([TopicPut("t", ID, [RECORD], [9], 9, first_index=2)])
    assert diff == Diff(partitions_created=[(topic, 2)])
    assert (topic.mod_rev, topic.partition_revs) == (9, [5, 5, 9])


def test_a_deleted_topic_is_gone_once() -> None:
    image = image_with(created())
    assert len(image.apply([TopicGone("t", ID)]).topics_deleted) == 1
    assert not image.topics and not image.topics_by_id
    assert image.apply([TopicGone("t", ID)]) == Diff()


def test_deleting_an_old_id_does_not_touch_the_new_topic_of_that_name() -> None:
    image = image_with(created(topic_id=OTHER_ID))
    assert image.apply([TopicGone("t", ID)]) == Diff()
    assert "t" in image.topics


def test_the_highest_partition_epoch_wins_in_whatever_order_records_come() -> None:
    image = image_with(created())
    newer = PartitionRecord(replicas=(1,), isr=RECORD.isr, leader=1, leader_epoch=2, partition_epoch=2)
    older = PartitionRecord(replicas=(1,), isr=RECORD.isr, leader=1, leader_epoch=1, partition_epoch=1)
    assert image.apply([PartitionPut(ID, 0, newer, 8)]).partitions_changed == [(image.topics["t"], 0)]
    assert image.apply([PartitionPut(ID, 0, older, 7)]) == Diff()
    assert image.partition("t", 0) == newer
    assert image.topics["t"].partition_revs == [8, 5]


def test_a_record_of_an_unknown_partition_changes_nothing() -> None:
    image = image_with(created())
    assert image.apply([PartitionPut(ID, 2, RECORD, 8), PartitionPut(OTHER_ID, 0, RECORD, 8)]) == Diff()


def test_a_leader_counts_only_while_it_is_registered() -> None:
    image = image_with(created())
    assert image.leader_of(RECORD) == NO_LEADER
    image.apply([BrokerPut(RegisteredBroker(1, 7, "h", 9092, None))])
    assert image.leader_of(RECORD) == 1
    image.apply([BrokerGone(1)])
    assert image.leader_of(RECORD) == NO_LEADER


def test_overrides_of_a_topic_change_its_settings_and_tell_so() -> None:
    image = image_with(created())
    topic = image.topics["t"]
    assert image.apply([TopicOverrides("t", {"retention.ms": "5"}, 8)]) == Diff(topics_configured=[topic])
    assert (topic.config.retention_ms, topic.overrides_rev) == (5, 8)
    image.apply([TopicOverrides("t", {}, 0)])
    assert topic.config.retention_ms == 604_800_000
    assert image.apply([TopicOverrides("u", {}, 0)]) == Diff()


def test_a_node_takes_its_own_settings_before_those_of_all_and_those_before_its_start() -> None:
    image = image_with(settings={"max.connections": "1", "log.retention.ms": "1", "log.segment.bytes": "100"})
    image.apply([BrokerOverrides(None, {"max.connections": "2", "log.retention.ms": "2"}, 3)])
    image.apply([BrokerOverrides(1, {"max.connections": "3"}, 4), BrokerOverrides(2, {"max.connections": "4"}, 5)])
    config = image.broker_config
    assert (config.max_connections, config.log_retention_ms, config.log_segment_bytes) == (3, 2, 100)


def test_a_changed_broker_setting_reaches_topics_that_do_not_set_it_themselves() -> None:
    image = image_with(created(), created("u", OTHER_ID)._replace(overrides={"retention.ms": "9"}, overrides_rev=5))
    diff = image.apply([BrokerOverrides(None, {"log.retention.ms": "2"}, 6)])
    assert diff.broker_configured
    assert diff.topics_configured == list(image.topics.values())
    assert [topic.config.retention_ms for topic in image.topics.values()] == [2, 9]


def test_settings_of_another_node_change_nothing_here() -> None:
    image = image_with(created())
    assert image.apply([BrokerOverrides(2, {"log.retention.ms": "2"}, 6)]) == Diff()


def test_stored_broker_settings_that_cannot_be_read_count_as_not_set() -> None:
    image = image_with(BrokerOverrides(None, {"from.the.future": "x", "max.connections": "-5"}, 3))
    assert image.broker_config.max_connections == 10_000


def test_the_cluster_has_the_id_that_it_was_given() -> None:
    assert image_with(ClusterNamed("abc")).cluster_id == "abc"


def test_partitions_led_by_a_broker_are_found() -> None:
    other = PartitionRecord(replicas=(2,), isr=(), leader=2)
    image = image_with(TopicPut("t", ID, [RECORD, other, RECORD], [5, 5, 5], 5))
    assert [index for _, index in image.led_by(1)] == [0, 2]


def test_a_registration_without_a_number_is_intact_since_itself() -> None:
    record = BrokerRecord("i", "h", 9092, state="shutting_down", last_epoch=4)
    broker = registered(3, record, 9, 12)
    assert (broker.epoch, broker.intact_since, broker.last_epoch, broker.is_shutting_down) == (9, 9, 4, True)
    assert registered(3, BrokerRecord("i", "h", 9092, intact_since=2), 9, 12).intact_since == 2


def test_nodes_that_come_change_and_go_are_told_once() -> None:
    image = ClusterImage(1, {})
    node = RegisteredBroker(2, 7, "h", 9092, None, mod_rev=7)
    assert image.apply([BrokerPut(node)]).brokers_changed == {2}
    assert image.apply([BrokerPut(node)]) == Diff()
    leaving = node._replace(is_shutting_down=True, mod_rev=9)
    assert image.apply([BrokerPut(leaving)]).brokers_changed == {2}
    assert image.apply([BrokerPut(node)]) == Diff()
    assert image.apply([BrokerGone(2)]).brokers_changed == {2}
    assert image.apply([BrokerGone(2)]) == Diff()


def test_a_replica_is_live_on_a_registered_node_that_stays_and_whose_directory_works() -> None:
    node = RegisteredBroker(2, 7, "h", 9092, None)
    image = image_with(created(), BrokerPut(node))
    assert image.is_live(2, ID, 0) and not image.is_live(3, ID, 0)
    assert image.apply([OfflineReplicas(2, frozenset({(ID, 0)}))]).offline_changed == {2}
    assert not image.is_live(2, ID, 0) and image.is_live(2, ID, 1)
    assert image.apply([OfflineReplicas(2, frozenset({(ID, 0)}))]) == Diff()
    assert image.apply([OfflineReplicas(2, frozenset())]).offline_changed == {2}
    image.apply([BrokerPut(node._replace(is_shutting_down=True))])
    assert not image.is_live(2, ID, 0) and image.is_reachable(2, ID, 0)


def test_a_new_controller_is_told() -> None:
    image = ClusterImage(1, {})
    assert image.apply([ControllerIs(Controller(2, 40))], rev=41).controller_changed
    assert (image.controller, image.rev) == (Controller(2, 40), 41)
    assert image.apply([ControllerIs(Controller(2, 40))], rev=40) == Diff()
    assert image.rev == 41
    assert image.apply([ControllerIs(None)]).controller_changed and image.controller is None


def test_changes_that_are_not_newer_change_nothing() -> None:
    image = image_with(created(), TopicOverrides("t", {"retention.ms": "5"}, 8))
    image.apply([BrokerOverrides(None, {"log.retention.ms": "7"}, 9)])
    newer = PartitionRecord(replicas=(1,), isr=RECORD.isr, leader=1, partition_epoch=1)
    image.apply([PartitionPut(ID, 0, newer, 10)])
    again: list[Change] = [
        created(),
        TopicOverrides("t", {}, 7),
        BrokerOverrides(None, {}, 8),
        PartitionPut(ID, 0, newer, 10),
    ]
    assert image.apply(again) == Diff()
    assert image.apply([TopicOverrides("t", {}, 0)]) == Diff(topics_configured=[image.topics["t"]])
