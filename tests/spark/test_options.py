"""Options: what Spark's own connector takes is taken, what is wrong is told in one sentence."""

from typing import Any

import pytest

from headrace.model import TopicPartition
from headrace.spark import given
from headrace.spark.option_values import EARLIEST, LATEST, OptionRefused
from headrace.spark.options import Mode, SourceOptions, read_options
from headrace.spark.write_options import write_options

LEAST = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def parse(mode: Mode = "stream", **options: str) -> SourceOptions:
    dotted = {key.replace("__", "."): value for key, value in options.items()}
    return read_options({**LEAST, **dotted}, mode)


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert parse().starting.end == LATEST
    assert parse("batch").starting.end == EARLIEST
    assert parse("batch").ending.end == LATEST


def test_names_come_in_any_case() -> None:
    assert parse(MAXOFFSETSPERTRIGGER="5").offsets_per_trigger_max == 5
    assert parse(maxoffsetspertrigger="5").offsets_per_trigger_max == 5


def test_topics_are_named_by_exactly_one_option() -> None:
    assert parse(subscribe=" a, b ,a").selection.topics == ("a", "b")
    only = {"kafka.bootstrap.servers": "h:1"}
    assert read_options({**only, "subscribePattern": " a.* "}, "batch").selection.pattern == "a.*"
    assigned = read_options({**only, "assign": '{"t": [1, 0]}'}, "batch").selection.partitions
    assert assigned == (TopicPartition("t", 0), TopicPartition("t", 1))


def test_a_time_beats_times_by_partition_which_beat_offsets() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t": {"0": 7}}'}
    assert parse("stream", **given).starting.times_ms == {TopicPartition("t", 0): 7}
    assert parse("stream", **given, startingTimestamp="5").starting.time_ms == 5


def test_a_batch_begins_and_ends_at_times_too() -> None:
    by_partition = '{"t": {"0": 7}}'
    options = parse("batch", startingTimestamp="5", endingTimestamp="9")
    assert (options.starting.time_ms, options.ending.time_ms) == (5, 9)
    options = parse("batch", startingOffsetsByTimestamp=by_partition, endingOffsetsByTimestamp=by_partition)
    assert options.starting.times_ms == options.ending.times_ms == {TopicPartition("t", 0): 7}


def test_what_is_for_the_kafka_client_passes_and_what_we_know_of_it_is_used() -> None:
    options = parse(kafka__max__poll__records="20000", kafka__fetch__max__bytes="77", kafka__client__id="me")
    assert options.connection.fetch_bytes_max == 77
    assert options.connection.client_id == "me"
    assert parse(kafka__isolation__level="read_committed").connection.is_read_committed
    assert parse(kafka__security__protocol="PLAINTEXT") == parse()


def test_who_wants_what_is_there_at_once_may_say_so() -> None:
    connection = parse(kafka__fetch__max__wait__ms="0", kafka__fetch__min__bytes="0").connection
    assert (connection.fetch_wait_ms, connection.fetch_bytes_min) == (0, 0)


def test_a_comma_behind_the_last_broker_is_nothing() -> None:
    assert parse(kafka__bootstrap__servers="h:1,").connection.bootstrap == "h:1,"


def test_limits_of_a_trigger_are_ignored_in_a_batch_as_sparks_own_connector_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"maxOffsetsPerTrigger": "9", "minOffsetsPerTrigger": "3", "maxTriggerDelay": "1s"}
    assert parse("batch", **given).selection == parse("batch").selection
    assert [record.getMessage().split()[1] for record in caplog.records] == list(given)


@pytest.mark.parametrize(
    ("text", "amount_ms"),
    [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2 hours", 7_200_000), ("7", 7), ("0s", 0)],
)
def test_a_delay_is_written_as_spark_writes_times(text: str, amount_ms: int) -> None:
    assert parse(maxTriggerDelay=text).trigger_delay_ms_max == amount_ms


def test_metadata_is_asked_for_anew_each_time_where_its_cache_is_off() -> None:
    ages = [parse(partition__metadata__cache__ttl__ms=text).metadata_ttl_ms for text in ("-1", "0", "7")]
    assert ages == [0, 0, 7]


def test_bytes_are_written_with_units_or_without() -> None:
    assert [parse(maxBytesPerTrigger=text).bytes_per_trigger_max for text in ("9", "2k", "10mb")] == [9, 2048, 10 << 20]


@pytest.mark.parametrize(
    ("mode", "given", "sentence"),
    [
        ("stream", {"startingOfset": "x"}, "there is no option startingofset; is startingOffsets meant?"),
        ("stream", {"zzz": "x"}, "there is no option zzz; known are "),
        ("stream", {"path": "x"}, "load() takes no path"),
        ("stream", {"assign": '{"t":[0]}'}, "subscribe and assign contradict each other"),
        (
            "stream",
            {"endingOffsets": "latest"},
            "option endingOffsets is one of spark.read; a stream has no use for it",
        ),
        ("batch", {"maxBytesPerTrigger": "1"}, "option maxBytesPerTrigger is one of spark.readStream; a batch"),
        (
            "batch",
            {"startingTimestamp": "7", "endingTimestamp": "5"},
            "option startingTimestamp (7) is later than endingTimestamp (5)",
        ),
        (
            "batch",
            {"startingOffsetsByTimestamp": '{"t":{"1":7}}', "endingOffsetsByTimestamp": '{"t":{"1":5}}'},
            "option startingOffsetsByTimestamp of t-1 (7) is later than endingOffsetsByTimestamp (5)",
        ),
        ("batch", {"startingOffsets": "latest"}, "from which a batch would read nothing"),
        ("batch", {"startingOffsets": '{"t":{"0":-1}}'}, "holds -1 (latest)"),
        ("batch", {"endingOffsets": "earliest"}, "up to which a batch would read nothing"),
        ("batch", {"endingOffsets": '{"t":{"0":-2}}'}, "holds -2 (earliest)"),
        ("stream", {"startingOffsets": "middle"}, 'option startingOffsets is JSON like {"topic": {"0": 23, "1": -2}}'),
        ("stream", {"startingOffsets": '{"t":{"0":-3}}'}, "is none of it"),
        ("stream", {"startingOffsets": '{"t":[0]}'}, "is JSON like"),
        ("stream", {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "is more than maxOffsetsPerTrigger (3)"),
        ("stream", {"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger is a whole number from 1 on, not '0'"),
        (
            "stream",
            {"kafka.fetch.max.bytes": "4294967296"},
            "option kafka.fetch.max.bytes is a whole number from 1 to 2147483647, not '4294967296'",
        ),
        ("batch", {"startingTimestamp": "9" * 19}, "option startingTimestamp is a whole number from 0 on"),
        ("batch", {"endingOffsetsByTimestamp": f'{{"t":{{"0":{10**19}}}}}'}, "is none of it"),
        ("stream", {"maxOffsetsPerTrigger": "9" * 5_000}, "option maxOffsetsPerTrigger is a whole number from 1 on"),
        ("stream", {"maxTriggerDelay": "9" * 5_000}, "option maxTriggerDelay is a time such as"),
        ("stream", {"startingOffsets": f'{{"t":{{"{"9" * 5_000}":1}}}}'}, "is none of it"),
        ("stream", {"maxTriggerDelay": "soon"}, "option maxTriggerDelay is a time such as"),
        ("stream", {"failOnDataLoss": "maybe"}, "option failOnDataLoss is true or false, not 'maybe'"),
        ("stream", {"commitGroupOffsets": "true"}, "commitGroupOffsets needs kafka.group.id"),
        (
            "batch",
            {"readTier": "false", "tierUrl": "/tier"},
            "and readTier=false that they do not: leave one of them out",
        ),
        ("stream", {"kafka.auto.offset.reset": "latest"}, "where to begin is said by startingOffsets"),
        ("stream", {"kafka.security.protocol": "SASL_SSL"}, "can only be PLAINTEXT"),
        ("stream", {"kafka.isolation.level": "serial"}, "is read_uncommitted or read_committed, not 'serial'"),
        ("stream", {"kafka.bootstrap.servers": "nowhere"}, "option kafka.bootstrap.servers is host:port"),
        ("stream", {"subscribe": " , "}, "option subscribe names no topic"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(mode: Mode, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionRefused) as raised:
        read_options({**LEAST, **given}, mode)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscribe": "t"}, "option kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "h:1"}, "no option says which topics to read"),
        (
            {"kafka.bootstrap.servers": "h:1", "subscribePattern": "("},
            "option subscribePattern is no regular expression of Python's",
        ),
        (
            {"kafka.bootstrap.servers": "h:1", "subscribePattern": "[a-z&&[^b]]"},
            "option subscribePattern is no regular expression of Python's: Possible set intersection at position 4",
        ),
        ({"kafka.bootstrap.servers": "h:1", "subscribePattern": " "}, "option subscribePattern names no topic"),
        ({"kafka.bootstrap.servers": "h:1", "assign": "{}"}, "option assign names no partition"),
    ],
)
def test_what_is_missing_is_told_in_one_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionRefused, match=sentence):
        read_options(given, "stream")


def test_a_kafka_option_that_is_mistyped_is_warned_of_once_and_taken(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given, "_told", set())
    for _ in range(2):
        assert parse(kafka__isolation__levl="read_committed") == parse()
        write_options({"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.batch.siz": "9"})
    assert [record.getMessage() for record in caplog.records] == [
        "option kafka.isolation.levl is no setting of Kafka's clients, and is ignored; is kafka.isolation.level meant?",
        "option kafka.batch.siz is no setting of Kafka's clients, and is ignored; is kafka.batch.size meant?",
    ]


def test_a_kafka_option_that_is_not_used_here_or_is_somebody_elses_is_taken_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert parse(kafka__receive__buffer__bytes="1", kafka__schema__registry__url="http://h") == parse()
    assert caplog.records == []
