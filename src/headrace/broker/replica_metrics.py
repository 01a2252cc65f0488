"""Metrics of replication: what this node leads, and what it decides as the controller."""

from collections.abc import Iterator

from headrace.broker.broker import Broker
from headrace.broker.metrics import Family, counter, gauge
from headrace.broker.partitions import Hosted
from headrace.controller.elections import leaderless
from headrace.core.thin import thin_and_held_back


def families(broker: Broker) -> Iterator[Family]:
    yield from _of_replicas(broker)
    yield from _of_guards(broker)
    yield from _of_controller(broker)
    yield gauge("headrace_metadatastoreunavailablems", broker.store_health.unavailable_ms())
    yield gauge("headrace_leaseremainingms", broker.store_health.lease_remaining_ms())


def _of_replicas(broker: Broker) -> Iterator[Family]:
    replicas = "kafka_server_replicamanager_"
    leading = [partition for partition in broker.isr_updates.leading if partition.leadership is not None]
    under_replicated = under_min = at_min = reassigning = 0
    for partition in leading:
        leadership = partition.leadership
        assert leadership is not None
        record = leadership.record
        lacking = leadership.isr_min(partition.config.min_insync_replicas) - len(record.isr)
        under_replicated += len(record.isr) < len(record.replicas) - len(record.adding)
        under_min += lacking > 0
        at_min += lacking == 0
        reassigning += bool(record.adding or record.removing)
    led = offline = 0
    for partition in broker.partitions:
        offline += bool(partition.fault)
        led += partition.is_leading and not partition.fault
    yield gauge(replicas + "partitioncount", broker.partitions.count)
    yield gauge(replicas + "leadercount", led)
    yield gauge(replicas + "offlinereplicacount", offline)
    yield gauge(replicas + "underreplicatedpartitions", under_replicated)
    yield gauge(replicas + "underminisrpartitioncount", under_min)
    yield gauge(replicas + "atminisrpartitioncount", at_min)
    yield gauge(replicas + "reassigningpartitions", reassigning)
    yield counter(replicas + "isrshrinks_total", broker.isr_updates.shrinks)
    yield counter(replicas + "isrexpands_total", broker.isr_updates.expands)
    yield counter(replicas + "failedisrupdates_total", broker.isr_updates.failures)


def _of_guards(broker: Broker) -> Iterator[Family]:
    guards = broker.guards
    yield gauge("headrace_listoffsetsguardedpartitions", guards.guarded)
    yield counter("headrace_listoffsetsnotavailable_total", guards.refused)
    yield guards.lasted_ms.family("headrace_listoffsetsguardwindowms")


def _of_controller(broker: Broker) -> Iterator[Family]:
    """Gauges are the controller's alone, so that their sum over all nodes is right."""
    controller, image = broker.controller, broker.image
    decides = controller.is_controller
    imbalance = offline = thin_count = held_back = 0
    if decides:
        offline = leaderless(image)
        for topic in image.topics.values():
            imbalance += sum(record.leader != record.replicas[0] for record in topic.partitions)
        thin_count, held_back = thin_and_held_back(image, broker.clock.wall_ms())
    name = "kafka_controller_kafkacontroller_"
    held, moves = controller.elections.held, controller.moves.counts
    yield gauge(name + "activecontrollercount", int(decides))
    yield gauge(name + "offlinepartitionscount", offline)
    yield gauge(name + "preferredreplicaimbalancecount", imbalance)
    yield counter("kafka_controller_controllerstats_uncleanleaderelections_total", held["unclean"])
    yield counter("headrace_nonintactleaderelections_total", held["not intact"])
    yield gauge("headrace_thinreplicacount", thin_count)
    yield gauge("headrace_preferredelectionsheldback", held_back)
    yield counter("headrace_leaderelectionsdeprioritized_total", controller.elections.deprioritized)
    yield counter("headrace_locallogreports_total", controller.coverage_reports)
    yield counter("headrace_stepdowns_total", moves["step downs"])
    yield counter("headrace_stepdowntimeouts_total", moves["step downs without answer"])


def in_sync_replicas(partition: Hosted) -> int:
    """0 where this node does not lead."""
    if partition.leadership is not None:
        return len(partition.leadership.record.isr)
    return int(partition.is_leading and not partition.fault)


def stable_offset_lag(partition: Hosted) -> int:
    return partition.high_watermark - partition.last_stable_offset
