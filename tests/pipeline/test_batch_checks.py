"""What is found in a log that is not as it should be: each kind of harm by itself."""

from collections.abc import Callable

import pytest

from headrace.pipeline.batch_checks import BatchChecks, Finding, Stretch
from headrace.pipeline.replica_reading import Piece
from headrace.pipeline.verify import chains, fit
from headrace.wire.batch import CRC_AT, NewRecord, build, crc_of, place

Log = list[bytearray]


def batch(base: int, count: int = 2, *, epoch: int = 0, producer: tuple[int, int, int] = (7, 0, 0)) -> bytearray:
    records = [NewRecord(1_000, None, b"value %d" % (base + at)) for at in range(count)]
    built = build(records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
    place(built, 0, base, epoch)
    return built


def log() -> Log:
    """Offsets 0 to 7, of one producer, in two leader epochs."""
    return [batch(base, epoch=base // 4, producer=(7, 0, base)) for base in range(0, 8, 2)]


def checked(batches: Log, start: int = 0, end: int = 8, chunk: int = 1 << 20, **how: bool) -> Stretch:
    checks = BatchChecks(start, end, **{"is_compacted": False, **how})
    data, rest = b"".join(batches), b""
    for at in range(0, len(data), chunk):
        rest += data[at : at + chunk]
        rest = rest[checks.feed(rest) :]
        if checks.is_done:
            break
    return checks.finish()


def test_a_log_that_is_well_gives_its_figures_whatever_pieces_it_comes_in() -> None:
    whole = checked(log())
    assert (whole.batches, whole.records, whole.findings) == (4, 8, [])
    assert (whole.first_offset, whole.next_offset, whole.first_epoch, whole.last_epoch) == (0, 8, 0, 1)
    assert whole.bytes == sum(map(len, log()))
    for chunk in (1, 61, 100, 1000):
        assert checked(log(), chunk=chunk) == whole


def test_a_stretch_has_the_batches_whose_last_offsets_lie_in_it() -> None:
    first, second = checked(log(), 0, 3), checked(log()[1:], 3, 8)
    assert (first.batches, first.next_offset, second.batches, second.first_offset) == (1, 2, 3, 2)
    assert list(fit([first, second], is_compacted=False)) == []
    assert first.digest != second.digest and checked(log(), 0, 3).digest == first.digest


def flip(batches: Log) -> None:
    batches[1][70] ^= 1


def lose_one(batches: Log) -> None:
    del batches[1]


def go_back(batches: Log) -> None:
    place(batches[3], 0, 6, 0)


def repeat(batches: Log) -> None:
    batches[3] = batch(6, epoch=1, producer=(7, 0, 4))


def rubbish(batches: Log) -> None:
    batches[2][8:12] = bytes(4)


def miscount(batches: Log) -> None:
    harmed = batches[0]
    harmed[60] = 9
    harmed[CRC_AT : CRC_AT + 4] = crc_of(harmed, 0, len(harmed)).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("harm", "kind", "offset"),
    [
        (flip, "checksum", 2),
        (lose_one, "offsets", 4),
        (go_back, "epochs", 6),
        (repeat, "sequence", 6),
        (rubbish, "batch", 4),
        (miscount, "offsets", 0),
    ],
)
def test_each_harm_is_found_where_it_is(harm: Callable[[Log], None], kind: str, offset: int) -> None:
    batches = log()
    harm(batches)
    found = checked(batches).findings
    assert [(one.kind, one.offset) for one in found] == [(kind, offset)], found


@pytest.mark.parametrize(("harm", "kind", "offset"), [(lose_one, "offsets", 4), (repeat, "sequence", 6)])
def test_harm_between_two_stretches_is_found_when_they_are_joined(
    harm: Callable[[Log], None], kind: str, offset: int
) -> None:
    batches = log()
    harm(batches)
    cut = next(at for at, one in enumerate(batches) if int.from_bytes(one[:8], "big") == offset)
    first, second = checked(batches[:cut], 0, offset), checked(batches[cut:], offset, 8)
    assert not first.findings and not second.findings
    found = list(fit([first, second], is_compacted=False))
    assert [(one.kind, one.offset) for one in found] == [(kind, offset)], found


def test_ends_that_are_missing_are_found() -> None:
    assert [one.kind for one in fit([checked(log()[1:])], is_compacted=False)] == ["missing"]
    (tail,) = fit([checked(log()[:-1])], is_compacted=False)
    assert tail == Finding("missing", 6, "offsets 6 to 7 are not there")
    assert list(fit([checked([], 0, 8)], is_compacted=False)) == [Finding("missing", 0, "offsets 0 to 7 are not there")]


def test_what_was_told_of_one_stretch_is_not_told_again_of_the_next() -> None:
    harmed, rest = Stretch(0, 4), checked(log()[2:], 4, 8)
    harmed.note("tier", 0, "the object is missing")
    assert list(fit([harmed, rest], is_compacted=False)) == []
    assert [one.kind for one in fit([Stretch(0, 4), rest], is_compacted=False)] == ["missing"]


def test_a_compacted_log_may_have_gaps_and_yet_not_go_back() -> None:
    batches = log()
    del batches[1]
    assert checked(batches, is_compacted=True).findings == []
    assert list(fit([checked(batches[:-1], is_compacted=True)], is_compacted=True)) == []
    again = [*batches, batch(2, producer=(-1, -1, -1))]
    assert {one.kind for one in checked(again, is_compacted=True).findings} == {"offsets", "epochs"}


def test_a_producer_may_leave_sequences_out_wrap_them_and_begin_anew_in_another_epoch() -> None:
    newest = (1 << 31) - 1
    batches = [
        batch(0, producer=(7, 0, newest - 1)),
        batch(2, producer=(7, 0, 0)),
        batch(4, producer=(7, 0, 100)),
        batch(6, producer=(7, 1, 0)),
    ]
    assert checked(batches).findings == []


def test_pieces_that_overlap_are_no_chain() -> None:
    pieces = [Piece(0, -1, *both) for both in ((0, 4), (2, 4), (4, 8), (10, 12))]
    assert [[(one.start, one.end) for one in chain] for chain in chains(pieces)] == [[(0, 4), (4, 8)], [(10, 12)]]
