"""The memory for remote reads stays within its bound, and keeps what somebody waits for."""

from headrace.tier.read_cache import FRESH_MS, Piece, ReadCache
from headrace.tier.spans import SpanMap
from tests.tier.rows import row


def piece(cache: ReadCache, row_id: str, start: int, size: int, now_ms: int, *, is_ahead: bool = False) -> bool:
    """Whether there was room for it."""
    if not cache.make_room(size, now_ms, is_ahead=is_ahead):
        return False
    cache.give_back(size)
    cache.put_piece(row_id, start, Piece(start, start + size, b"x" * size), now_ms, is_ahead=is_ahead)
    return True


def test_what_was_not_used_for_longest_goes_first() -> None:
    cache = ReadCache(300)
    for start in (0, 100, 200):
        assert piece(cache, "a", start, 100, 0)
        cache.piece_read("a", start, is_done=True)
    cache.piece_read("a", 0, is_done=True)
    assert piece(cache, "a", 300, 100, 0)
    assert cache.piece("a", 0, 0) and not cache.piece("a", 100, 100) and cache.piece("a", 200, 200)
    assert cache.bytes == 300


def test_what_was_read_to_its_end_goes_before_what_is_being_read_and_that_before_what_was_read_ahead() -> None:
    cache = ReadCache(400)
    assert piece(cache, "a", 200, 100, 0, is_ahead=True)
    assert piece(cache, "a", 100, 100, 0)
    cache.piece_read("a", 100, is_done=False)
    assert piece(cache, "a", 0, 100, 0)
    cache.piece_read("a", 0, is_done=True)
    for begun, left in ((300, {0, 100, 200}), (400, {100, 200}), (500, {200}), (600, set())):
        assert piece(cache, "a", begun, 100, 0)
        assert {start for start in (0, 100, 200) if cache.piece("a", start, start)} == left


def test_to_read_ahead_drives_out_only_what_is_done_and_leaves_room() -> None:
    cache = ReadCache(400)
    for start in (0, 100):
        assert piece(cache, "a", start, 100, 0)
        cache.piece_read("a", start, is_done=False)
    assert piece(cache, "a", 200, 100, 0, is_ahead=True)
    assert not piece(cache, "a", 300, 100, 0, is_ahead=True), "a quarter is for others"
    cache.piece_read("a", 100, is_done=True)
    assert piece(cache, "a", 300, 100, 0, is_ahead=True)
    assert not cache.piece("a", 100, 100)


def test_what_somebody_waits_for_stays_until_it_is_read_or_its_time_is_over() -> None:
    cache = ReadCache(300)
    assert all(piece(cache, "a", start, 100, 0) for start in (0, 100, 200))
    assert not piece(cache, "a", 300, 100, FRESH_MS - 1)
    assert cache.bytes == 300
    cache.piece_read("a", 100, is_done=False)
    assert piece(cache, "a", 300, 100, FRESH_MS - 1)
    assert not cache.piece("a", 100, 100)
    assert piece(cache, "a", 400, 100, FRESH_MS)
    assert not cache.piece("a", 0, 0) and cache.piece("a", 200, 200)


def test_what_is_on_its_way_counts_and_one_that_is_too_large_comes_alone() -> None:
    cache = ReadCache(300)
    assert cache.make_room(200, 0)
    assert not cache.make_room(101, 0)
    cache.give_back(200)
    assert cache.make_room(1_000, 0)
    assert not cache.make_room(1, 0)
    cache.give_back(1_000)
    assert cache.bytes == 0


def test_the_map_of_a_segment_stays_as_long_as_a_piece_of_it_does() -> None:
    spans = SpanMap(row(7, 0, 9), b"", 100)
    cache = ReadCache(1_200)
    cache.put_map(spans, 1_000, 0)
    assert piece(cache, spans.row.id, 0, 100, 0)
    now_ms = 2 * FRESH_MS
    assert cache.make_room(200, now_ms)
    assert cache.map_of(spans.row.id) is spans and cache.piece(spans.row.id, 0, 0) is None
    cache.give_back(200)
    assert cache.make_room(1_000, now_ms)
    assert cache.map_of(spans.row.id) is None


def test_a_piece_that_begins_later_in_its_span_serves_only_from_there_on() -> None:
    cache = ReadCache(300)
    cache.put_piece("a", 0, Piece(40, 100, b"x" * 60), 0)
    assert cache.piece("a", 0, 39) is None and cache.piece("a", 0, 40)
    cache.put_piece("a", 0, Piece(0, 100, b"x" * 100), 0)
    assert cache.piece("a", 0, 0) and cache.bytes == 100


def test_a_segment_whose_map_takes_all_the_room_is_read_nevertheless() -> None:
    spans = SpanMap(row(7, 0, 9), b"", 100)
    cache = ReadCache(1_000)
    assert cache.make_room(2_000, 0, row_id=spans.row.id)
    cache.give_back(2_000)
    cache.put_map(spans, 2_000, 0)
    assert cache.map_of(spans.row.id) is spans
    assert not cache.make_room(100, 0, row_id=spans.row.id, is_ahead=True)
    assert cache.make_room(100, 0, row_id=spans.row.id)
    assert cache.map_of(spans.row.id) is spans
    cache.give_back(100)
    assert cache.make_room(100, 0, row_id="another"), "its map goes for others"
    assert cache.map_of(spans.row.id) is None
