"""Reading ahead pays only for readers that go on."""

from headrace.tier.read_ahead import SHARE, STREAMS_MAX, Streams


def test_nothing_is_read_ahead_of_somebody_who_has_only_begun() -> None:
    assert Streams(1_000).read(("a", 0), ("a", 100), 100) == 0


def test_who_goes_on_gets_a_fifth_of_what_it_had_and_no_more_than_agreed() -> None:
    streams = Streams(ahead_bytes_max=300)
    ahead = [streams.read(("a", at), ("a", at + 100), 100) for at in range(0, 3_000, 100)]
    assert ahead == [0, *(min((n + 1) * 100 // SHARE, 300) for n in range(1, 30))]


def test_two_that_read_the_same_are_one_reader() -> None:
    streams = Streams(ahead_bytes_max=1_000)
    for at in (0, 100):
        first = streams.read(("a", at), ("a", at + 100), 100)
        assert streams.read(("a", at), ("a", at + 100), 100) == first
    assert len(streams) == 2


def test_as_many_readers_are_known_as_agreed() -> None:
    streams = Streams(ahead_bytes_max=1_000)
    for n in range(3 * STREAMS_MAX):
        streams.read((str(n), 0), (str(n), 10), 10)
    assert len(streams) == STREAMS_MAX
