"""What may never be in a history of a query's batches: each is read once and as a whole, in the end and for ever."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.sim.batches import TOPIC, Row, row_of, rows_of
from headrace.sim.history import BatchCommitted, BatchTold, CommittedFinal, Event, NotRecovered
from headrace.sim.violation import Violation


def doubled_batches(events: Sequence[Event]) -> Iterator[Violation]:
    first: dict[Row, CommittedFinal] = {}
    for event in _finals(events):
        before = first.setdefault(row_of(event.value), event)
        if before is not event:
            sentence = f"{before.value!r} and {event.value!r} are the same row, and both are committed"
            yield Violation("doubled batch", 0, sentence)


def torn_batches(events: Sequence[Event]) -> Iterator[Violation]:
    if _nobody_could_look(events):
        return
    for batch_id, found in sorted(_found(events).items()):
        missing = [row for task in rows_of(batch_id) for row in task if row not in found]
        if missing:
            sentence = f"of batch {batch_id} {len(found)} rows are there, but {missing[0]} is not"
            yield Violation("torn batch", 0, sentence)


def lost_batches(events: Sequence[Event]) -> Iterator[Violation]:
    if _nobody_could_look(events):
        return
    found = _found(events)
    told: dict[int, float] = {}
    for event in events:
        if isinstance(event, BatchCommitted):
            told.setdefault(event.batch_id, event.at_s)
    for batch_id, at_s in sorted(told.items()):
        if any(rows_of(batch_id)) and batch_id not in found:
            yield Violation("lost batch", at_s, f"batch {batch_id} was committed at {at_s:.3f} s, and is not there")


def stray_batches(events: Sequence[Event]) -> Iterator[Violation]:
    """Of a batch that is not committed nothing is there."""
    if _nobody_could_look(events):
        return
    last = max((event.batch_id for event in events if isinstance(event, BatchTold)), default=-1)
    for batch_id in sorted(_found(events)):
        if batch_id > last:
            yield Violation("stray batch", 0, f"rows of batch {batch_id} are there, but {last} was the last one")


def batches_going_back(events: Sequence[Event]) -> Iterator[Violation]:
    """Who asks after somebody has heard of a batch hears of that one, or of a later one."""
    heard = sorted((event.at_s, event.batch_id) for event in events if isinstance(event, BatchCommitted | BatchTold))
    for event in events:
        if isinstance(event, BatchTold):
            before = max((batch_id for at_s, batch_id in heard if at_s < event.asked_s), default=-1)
            if event.batch_id < before:
                sentence = f"{event.client} heard that {event.batch_id} was the last batch, but {before} was committed"
                yield Violation("batch going back", event.at_s, sentence)


def _finals(events: Sequence[Event]) -> Iterator[CommittedFinal]:
    return (event for event in events if isinstance(event, CommittedFinal) and event.partition.topic == TOPIC)


def _found(events: Sequence[Event]) -> dict[int, set[Row]]:
    found: dict[int, set[Row]] = defaultdict(set)
    for event in _finals(events):
        row = row_of(event.value)
        found[row.batch_id].add(row)
    return found


def _nobody_could_look(events: Sequence[Event]) -> bool:
    return any(isinstance(event, NotRecovered) for event in events)


BATCH_CHECKERS: tuple[Callable[[Sequence[Event]], Iterable[Violation]], ...] = (
    doubled_batches,
    torn_batches,
    lost_batches,
    stray_batches,
    batches_going_back,
)
