"""The plots of the report: throughput, lag, offsets through the fail-over, and who led when."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from demo.evidence import Evidence
from demo.plan import PARTITIONS
from demo.plots import BOTTOM, COLOURS, TOP, Bar, Frame, Mark, Point, Series, document, frame_for, lanes, lines

HEIGHT = 170.0
LANE = 30.0
AROUND_KILL_S = (4.0, 10.0)
BEFORE_S = 10.0
PLACES = "abcdefghijklmnopqrstuvwxyz"


def node_colour(node_id: int) -> str:
    return COLOURS[node_id % len(COLOURS)]


def marks_of(seen: Evidence) -> list[Mark]:
    return [Mark(one.at_s, PLACES[at % len(PLACES)]) for at, one in enumerate(seen.happenings)]


def end_s(seen: Evidence) -> float:
    times = [one.at_s for one in seen.happenings] + [one.at_s for one in seen.acked[-1:]]
    return max(times, default=1.0)


def throughput(seen: Evidence) -> str:
    top, series = float(TOP), [_per_second(seen)]
    frame = frame_for(series, 0.0, end_s(seen), top, HEIGHT)
    parts = lines("Orders acknowledged by all replicas in sync, per second", series, marks_of(seen), frame)
    return document(top + HEIGHT + BOTTOM, parts)


def lag(seen: Evidence) -> str:
    series = [Series(name, behind(seen, name), colour) for name, colour in (("lake", COLOURS[0]), ("sums", COLOURS[2]))]
    frame = frame_for(series, 0.0, end_s(seen), float(TOP), HEIGHT)
    parts = lines("Acknowledged orders that the Spark queries have not done yet", series, marks_of(seen), frame)
    return document(TOP + HEIGHT + BOTTOM, parts)


def written(seen: Evidence) -> str:
    """By the brokers' clocks. Those of the last order are left out: nothing happens any more then."""
    times = sorted(one.at_s for one in seen.sums if one.at_s <= seen.closed_s)
    series = [Series("", [Point(at_s, count) for count, at_s in enumerate(times, 1)], COLOURS[2])]
    frame = frame_for(series, 0.0, end_s(seen), float(TOP), HEIGHT)
    parts = lines("Sums that Spark has written to their topic while the shop is open", series, marks_of(seen), frame)
    return document(TOP + HEIGHT + BOTTOM, parts)


def behind(seen: Evidence, query: str) -> list[Point]:
    """By offsets: a batch that was done again counts once, and one of which a driver died before it told of it counts
    with the next. One that is told of may have read more than was acknowledged when it was told."""
    acked = sorted(one.at_s for one in seen.acked)
    done = [one for one in seen.batches if one.query == query]
    return [
        Point(at_s, max(0, bisect_right(acked, at_s) - max((one.read for one in done if one.at_s <= at_s), default=0)))
        for at_s in (step / 2 for step in range(2 * int(end_s(seen)) + 1))
    ]


def offsets(seen: Evidence) -> str:
    """Every answer to a question for the latest offset of the partition whose leader was killed."""
    begin, end = seen.killed_s - AROUND_KILL_S[0], seen.killed_s + AROUND_KILL_S[1]
    told = [one for one in seen.ends if not one.error and one.partition == 0]
    series = [
        Series(f"told by node {node_id}", [Point(one.at_s, one.offset) for one in told if one.node_id == node_id],
               node_colour(node_id), dots=True)
        for node_id in sorted({one.node_id for one in told})
    ]  # fmt: skip
    frame = frame_for(series, begin, end, float(TOP), HEIGHT, low=None)
    marks = [Mark(seen.killed_s, f"kill -9 node {seen.killed_leader}")]
    parts = lines("The latest offset of orders-0, as nodes told it through the fail-over", series, marks, frame)
    return document(TOP + HEIGHT + BOTTOM, parts)


def leaders(seen: Evidence) -> str:
    height = LANE * PARTITIONS
    frame = Frame(0.0, end_s(seen), 0, 1, float(TOP), height)
    return document(TOP + height + BOTTOM, lanes("Who led", leader_bars(seen), marks_of(seen), frame))


def overview(seen: Evidence) -> str:
    """Throughput, and below it who led: one picture."""
    marks = _short_marks(seen)
    begin = max(min((one.at_s for one in marks), default=0.0) - BEFORE_S, 0.0)
    height, end = LANE * PARTITIONS, max((one.at_s for one in seen.acked), default=1.0)
    series = [_per_second(seen)]
    upper = frame_for(series, begin, end, float(TOP), HEIGHT)
    lower = Frame(begin, end, 0, 1, 2 * TOP + HEIGHT + BOTTOM, height)
    parts = lines("Orders acknowledged by all replicas in sync, per second", series, marks, upper)
    parts += lanes("Who led which partition", leader_bars(seen), [Mark(one.at_s, "") for one in marks], lower)
    return document(2 * TOP + HEIGHT + 2 * BOTTOM + height, parts)


def leader_bars(seen: Evidence) -> list[Bar]:
    bars, end = [], end_s(seen)
    for partition in sorted({one.partition for one in seen.led}):
        of_it = [one for one in seen.led if one.partition == partition]
        for one, after in zip(of_it, [*of_it[1:], None], strict=True):
            if one.leader >= 0:
                to_s = end if after is None else after.at_s
                label = f"node {one.leader}, epoch {one.epoch}"
                bars.append(Bar(f"orders-{partition}", one.at_s, to_s, node_colour(one.leader), label))
    return bars


def _per_second(seen: Evidence) -> Series:
    """Without the last second, which is not over."""
    counts = Counter(int(one.at_s) for one in seen.acked)
    last = max(counts, default=0)
    return Series("", [Point(second, counts[second]) for second in range(last)], COLOURS[0])


def _short_marks(seen: Evidence) -> Sequence[Mark]:
    words = {"files of": "files lost", "kill -9 node": "leader killed", "kill -9 the Spark": "driver killed",
             "disk is wiped": "broker wiped"}  # fmt: skip
    return [Mark(one.at_s, label) for one in seen.happenings for part, label in words.items() if part in one.what]
