"""From options to offsets: where reading begins and ends."""

from collections.abc import Iterable, Mapping

from headrace.model import TopicPartition
from headrace.spark.log_view import Ends, LogView, TopicNow
from headrace.spark.option_values import EARLIEST, LATEST, OptionRefused
from headrace.spark.options import Bound, Selection


def selected(selection: Selection, topics: Mapping[str, TopicNow]) -> list[TopicPartition]:
    """OptionRefused for a partition that is assigned and is not there."""
    there = [TopicPartition(topic, index) for topic, now in sorted(topics.items()) for index in now.partitions]
    if not selection.partitions:
        return there
    for one in selection.partitions:
        if one not in there:
            raise OptionRefused(f"option assign names {one}, which is not there")
    return list(selection.partitions)


def begin_offsets(
    bound: Bound, ends: Mapping[TopicPartition, Ends], view: LogView, is_miss_an_error: bool
) -> dict[TopicPartition, int]:
    """OptionRefused for partitions that are named and not read, or the other way round."""
    found = _at_bound(bound, ends, view)
    for one in sorted(one for one, offset in found.items() if offset is None):
        if is_miss_an_error:
            raise OptionRefused(
                f"no record of {one} is as new as option {bound.option} says; "
                f"with startingOffsetsByTimestampStrategy=latest it is read from its end"
            )
    return {one: ends[one].end if offset is None else offset for one, offset in found.items()}


def end_offsets(bound: Bound, ends: Mapping[TopicPartition, Ends], view: LogView) -> dict[TopicPartition, int]:
    """A time that no record has reached is the end of what there is."""
    found = _at_bound(bound, ends, view)
    return {one: ends[one].end if offset is None else offset for one, offset in found.items()}


def _at_bound(bound: Bound, ends: Mapping[TopicPartition, Ends], view: LogView) -> dict[TopicPartition, int | None]:
    if bound.time_ms is not None:
        return view.at_times(dict.fromkeys(ends, bound.time_ms))
    if bound.times_ms is not None:
        _check_named(bound.option, bound.times_ms, ends)
        return view.at_times(bound.times_ms)
    if bound.offsets is None:
        return {one: now.start if bound.end == EARLIEST else now.end for one, now in ends.items()}
    _check_named(bound.option, bound.offsets, ends)
    special = {one: {EARLIEST: now.start, LATEST: now.end} for one, now in ends.items()}
    return {one: special[one].get(offset, offset) for one, offset in bound.offsets.items()}


def _check_named(option: str, named: Iterable[TopicPartition], read: Iterable[TopicPartition]) -> None:
    named, read = set(named), set(read)
    for one in sorted(named - read):
        raise OptionRefused(f"option {option} names {one}, which is not among the partitions to read")
    for one in sorted(read - named):
        raise OptionRefused(f"option {option} does not name {one}, which is to be read; -2 is earliest, -1 is latest")
