"""Ranges of a remote segment, planned by its index, hold whole batches and all of them."""

import msgspec
import pytest

from headrace.core.tier_rows import SegmentRow
from headrace.errors import CorruptLog
from headrace.storage.index import OFFSET_ENTRY
from headrace.tier.spans import Span, SpanMap, whole_batches
from headrace.wire.batch import end_of, headers
from tests.tier.rows import Stored, stored_segment

BASE = 10


def parts_of(stored: Stored) -> tuple[bytes, bytes]:
    """Its log and its offset index."""
    (log_at, log_bytes), (index_at, index_bytes) = stored.row.sections.log, stored.row.sections.index
    content = bytes(stored.content)
    return content[log_at : log_at + log_bytes], content[index_at : index_at + index_bytes]


def thinned(index: bytes, keep_every: int) -> bytes:
    entries = list(OFFSET_ENTRY.iter_unpack(index))
    return b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries[keep_every::keep_every])


def all_spans(spans: SpanMap, log: bytes) -> list[Span]:
    """As a reader would meet them."""
    found, at = [], 0
    while at < len(log):
        span = spans.span_at(at)
        if not span.is_exact:
            whole = whole_batches(log[span.start : span.end], "a segment")
            if not whole:
                whole = next(headers(log[span.start :]))[1].size
            spans.learn(span.start, span.start + whole)
            span = spans.span_at(at)
        assert span.start == at and span.is_exact
        found.append(span)
        at = span.end
    return found


@pytest.mark.parametrize("keep_every", [1, 3, 1000])
@pytest.mark.parametrize("span_bytes", [100, 500, 1_000, 1 << 20])
def test_the_spans_of_a_segment_are_whole_batches_without_gap_or_overlap(keep_every: int, span_bytes: int) -> None:
    log, index = parts_of(stored := stored_segment(batches=40, base_offset=BASE))
    spans = SpanMap(stored.row, thinned(index, keep_every), span_bytes)
    found = all_spans(spans, log)
    assert found[0].start == 0 and found[-1].end == len(log)
    for span in found:
        assert whole_batches(log[span.start : span.end], "a segment") == span.end - span.start
        assert span.end - span.start <= max(2 * span_bytes, 300)
    assert all_spans(spans, log) == found, "what was learned stays"


@pytest.mark.parametrize("keep_every", [1, 7])
def test_the_batch_of_every_offset_is_found_from_the_floor_of_the_index_on(keep_every: int) -> None:
    log, index = parts_of(stored := stored_segment(batches=20, base_offset=BASE))
    spans = SpanMap(stored.row, thinned(index, keep_every), 1 << 20)
    places = {offset: at for at, head in headers(log) for offset in range(head.base_offset, head.last_offset + 1)}
    for offset, place in places.items():
        assert spans.floor(offset) <= place
        assert spans.position_of(log, 0, spans.floor(offset), offset) == place
    assert spans.position_of(log, 0, 0, BASE + 1_000) == len(log)


@pytest.mark.parametrize("keep_every", [1, 7, 1000])
def test_what_is_up_to_an_offset_lies_before_its_ceiling(keep_every: int) -> None:
    log, index = parts_of(stored := stored_segment(batches=20, base_offset=BASE))
    spans = SpanMap(stored.row, thinned(index, keep_every), 1 << 20)
    size = next(headers(log))[1].size
    for at, head in headers(log):
        for offset in (head.base_offset, head.last_offset):
            assert at + head.size <= spans.ceiling(offset) <= min(len(log), at + (2 * keep_every + 1) * size)
            assert spans.ceiling(offset) % size == 0


def reading(spans: SpanMap, log: bytes, at: int, bytes_max: int, limit: int, *, at_least_one: bool = True) -> list[int]:
    end, next_offset = spans.end_of(log, 0, at, bytes_max, limit, at_least_one)
    if end == at:
        assert next_offset == -1
        return []
    assert next_offset == end_of(log[at:end])
    return [head.base_offset for _, head in headers(log[at:end])]


@pytest.mark.parametrize("keep_every", [1, 4, 1000])
def test_what_is_read_ends_with_a_batch_below_the_limits(keep_every: int) -> None:
    log, index = parts_of(stored := stored_segment(batches=20, base_offset=BASE))
    spans = SpanMap(stored.row, thinned(index, keep_every), 1 << 20)
    size = next(headers(log))[1].size
    second = size
    assert reading(spans, log, second, 4 * size + 5, 1 << 40) == [12, 14, 16, 18]
    assert reading(spans, log, second, 1 << 20, 17) == [12, 14, 16]
    assert reading(spans, log, second, 1 << 20, 16) == [12, 14]
    assert reading(spans, log, second, 1 << 20, 1 << 40) == list(range(12, 50, 2))
    assert reading(spans, log, second, size - 1, 1 << 40) == [12]
    assert reading(spans, log, second, size - 1, 1 << 40, at_least_one=False) == []
    assert reading(spans, log, second, 1 << 20, 12) == []


def test_a_place_that_was_remembered_is_found_without_the_index() -> None:
    log, index = parts_of(stored := stored_segment(batches=20, base_offset=BASE))
    spans = SpanMap(stored.row, thinned(index, 100), 1 << 20)
    size = next(headers(log))[1].size
    assert spans.floor(18) == 0
    spans.remember(18, 4 * size)
    assert spans.floor(18) == 4 * size


def other_row(row: SegmentRow, log_bytes: int) -> SegmentRow:
    sections = msgspec.structs.replace(row.sections, log=(0, log_bytes))
    return msgspec.structs.replace(row, sections=sections)


def test_an_index_of_another_segment_and_bytes_that_are_no_batches_are_told() -> None:
    log, index = parts_of(stored := stored_segment(batches=20, base_offset=BASE))
    with pytest.raises(CorruptLog, match="not its own"):
        SpanMap(other_row(stored.row, 300), index, 1 << 20)
    spans = SpanMap(stored.row, b"", 1 << 20)
    with pytest.raises(CorruptLog, match="no record batch"):
        spans.end_of(b"\0" * len(log), 0, 0, 1 << 20, 1 << 40, at_least_one=True)
