from datetime import UTC, datetime

import pytest

from headrace.cli.outcome import UsageError
from headrace.cli.values import (
    AtOffset,
    AtTime,
    Beginning,
    End,
    Start,
    parse_address,
    parse_separator,
    parse_settings,
    parse_size,
    parse_start,
)

NOW_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Beginning()),
        ("end", End()),
        ("0", AtOffset(0)),
        ("42", AtOffset(42)),
        ("-5m", AtTime(NOW_MS - 300_000)),
        ("-250ms", AtTime(NOW_MS - 250)),
        ("-2h", AtTime(NOW_MS - 7_200_000)),
        ("-99999d", AtTime(0)),
        ("1969-12-31T23:59:59.999Z", AtTime(0)),
        ("2026-01-01T00:00:00Z", AtTime(NOW_MS)),
        ("2026-01-01T01:00+01:00", AtTime(NOW_MS)),
        ("2026-01-01 00:00:00.125Z", AtTime(NOW_MS + 125)),
    ],
)
def test_a_start_is_a_word_an_offset_or_a_time(text: str, start: Start) -> None:
    assert parse_start(text, NOW_MS) == start


def test_a_time_without_a_zone_is_the_local_one() -> None:
    local = datetime(2026, 1, 1, 12, 30).astimezone()
    assert parse_start("2026-01-01T12:30", NOW_MS) == AtTime(int(local.astimezone(UTC).timestamp() * 1000))


@pytest.mark.parametrize("text", ["", "start", "-5", "5m", "--5m", "-5w", "1e3", "2026-13-01", "9" * 30, "٣"])
def test_a_start_that_means_nothing_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="--from takes beginning, end, an offset, a time"):
        parse_start(text, NOW_MS)


def test_of_settings_given_twice_the_last_wins() -> None:
    assert parse_settings(["a=1", "b = x=y ", "a=2"]) == {"a": "2", "b": "x=y"}


@pytest.mark.parametrize("text", ["a", "=1", " =1", ""])
def test_a_setting_needs_a_key_and_a_value(text: str) -> None:
    with pytest.raises(UsageError, match="--set takes key=value"):
        parse_settings([text])


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9092", ("127.0.0.1", 9092)), ("localhost:0", ("localhost", 0)), ("[::1]:80", ("::1", 80))],
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, "--listen") == address


@pytest.mark.parametrize(
    "text", ["", "9092", ":9092", "host:", "host:x", "host:65536", "host:" + "1" * 5_000, "::1:80", "host:-1"]
)
def test_what_is_no_address_is_refused_by_the_option_s_name(text: str) -> None:
    with pytest.raises(UsageError, match="--listen takes HOST:PORT"):
        parse_address(text, "--listen")


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("100", 100), ("64k", 65_536), ("1MB", 1 << 20), ("100M", 100 << 20)]
)
def test_a_size_may_carry_a_unit(text: str, size: int) -> None:
    assert parse_size(text, "--size") == size


@pytest.mark.parametrize("text", ["", "-1", "1.5", "k", "1x", "1 k"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--size takes a number of bytes"):
        parse_size(text, "--size")


@pytest.mark.parametrize("text", ["101M", "2g", "104857601"])
def test_a_size_that_no_request_could_carry_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--size is at most 104857600 bytes"):
        parse_size(text, "--size")


def test_a_separator_may_be_a_written_tab() -> None:
    assert parse_separator("\\t") == b"\t"
    assert parse_separator("::") == b"::"
    with pytest.raises(UsageError):
        parse_separator("")
