"""Kafka's small text files, to the character as Apache Kafka 4.3.1 writes them."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model import TopicPartition
from headrace.storage.checkpoints import (
    CorruptCheckpoint,
    format_leader_epochs,
    format_offsets,
    format_partition_metadata,
    parse_leader_epochs,
    parse_offsets,
    parse_partition_metadata,
    parse_uuid,
    uuid_text,
)
from headrace.storage.properties import (
    MetaProperties,
    format_meta_properties,
    format_properties,
    parse_meta_properties,
    parse_properties,
)

EPOCHS = [(0, 0), (3, 17), (2147483647, 9007199254740993)]
EPOCHS_FROM_KAFKA = "0\n3\n0 0\n3 17\n2147483647 9007199254740993\n"
OFFSETS = {TopicPartition("t.a_b-c", 0): 5, TopicPartition("u", 11): 9007199254740993}
OFFSETS_FROM_KAFKA = "0\n2\nt.a_b-c 0 5\nu 11 9007199254740993\n"
TOPIC_ID = bytes.fromhex("fb0123456789abcdfedcba9876543210")
METADATA_FROM_KAFKA = "version: 0\ntopic_id: -wEjRWeJq83-3LqYdlQyEA"
META_FROM_KAFKA = (
    "#\n#Sun Nov 15 23:35:25 UTC 2026\ncluster.id=4L6g3nShT-eMCtK--X86sw\n"
    "directory.id=-wEjRWeJq83-3LqYdlQyEA\nnode.id=1\nversion=1\n"
)


def test_leader_epochs_are_written_and_read_as_apache_kafka_does() -> None:
    assert format_leader_epochs(EPOCHS) == EPOCHS_FROM_KAFKA
    assert [tuple(entry) for entry in parse_leader_epochs(EPOCHS_FROM_KAFKA)] == EPOCHS


def test_offsets_are_written_and_read_as_apache_kafka_does() -> None:
    assert format_offsets(OFFSETS) == OFFSETS_FROM_KAFKA
    assert parse_offsets(OFFSETS_FROM_KAFKA) == OFFSETS


@pytest.mark.parametrize("text", ["", "0\n", "0", "0\n0\n", "0\n0"])
def test_a_file_without_entries_is_an_empty_list(text: str) -> None:
    assert parse_leader_epochs(text) == ()
    assert parse_offsets(text) == {}


def test_nothing_is_written_as_a_list_without_entries() -> None:
    assert format_offsets({}) == format_leader_epochs([]) == "0\n0\n"


def test_a_last_line_without_newline_and_runs_of_blanks_are_accepted() -> None:
    assert parse_offsets("0\n1\nt \t 3  4") == {TopicPartition("t", 3): 4}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\n", "'' in the line '' is no number"),
        ("1\n0\n", "version 1, only 0 is known"),
        ("x\n0\n", "'x' in the line 'x' is no number"),
        ("0\nx\n", "'x' in the line 'x' is no number"),
        ("0\n2\n0 0\n", "announces 2 entries and has 1"),
        ("0\n0\n0 0\n", "announces 0 entries and has 1"),
        ("0\n1\n0\n", "'0', which is not 2 fields"),
        ("0\n1\n0 0 0\n", "'0 0 0', which is not 2 fields"),
        ("0\n1\n0 1_0\n", "'1_0' in the line '0 1_0' is no number"),
        ("0\n1\n0 ٣\n", "is no number"),
        ("0\n1\n0 99999999999999999999\n", "is no number"),
        ("0\n2\n1 0\n0 5\n", "out of order"),
        ("0\n2\n0 5\n1 5\n", "out of order"),
        ("0\n1\n-1 0\n", "out of order"),
    ],
)
def test_what_is_wrong_with_leader_epochs_is_named(text: str, complaint: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=complaint):
        parse_leader_epochs(text)


@pytest.mark.parametrize("text", ["0\n1\nt 0\n", "0\n1\nt 0 x\n", "0\n1\nt x 0\n", "0\n1\na b 0 1\n"])
def test_what_is_wrong_with_offsets_is_named(text: str) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_offsets(text)


def test_partition_metadata_is_written_and_read_as_apache_kafka_does() -> None:
    assert format_partition_metadata(TOPIC_ID) == METADATA_FROM_KAFKA
    assert parse_partition_metadata(METADATA_FROM_KAFKA) == TOPIC_ID
    assert parse_partition_metadata(METADATA_FROM_KAFKA + "\n") == TOPIC_ID


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no version"),
        ("version: 0", "names no topic_id"),
        ("nonsense", "without a colon"),
        (METADATA_FROM_KAFKA.replace("0", "1", 1), "version '1', only 0"),
        (METADATA_FROM_KAFKA[:-1], "no id of 22 characters"),
        (METADATA_FROM_KAFKA.replace("-wE", "+wE"), "no id of 22 characters"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "zeros"),
    ],
)
def test_what_is_wrong_with_partition_metadata_is_named(text: str, complaint: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=complaint):
        parse_partition_metadata(text)


@given(st.binary(min_size=16, max_size=16))
def test_ids_survive_as_22_characters(uuid: bytes) -> None:
    assert len(uuid_text(uuid)) == 22
    assert parse_uuid(uuid_text(uuid)) == uuid


def test_the_properties_of_a_directory_of_apache_kafka_are_read() -> None:
    assert parse_meta_properties(META_FROM_KAFKA) == MetaProperties("4L6g3nShT-eMCtK--X86sw", 1, TOPIC_ID)


def test_our_own_keys_stand_beside_kafkas() -> None:
    meta = MetaProperties("cluster", 3, TOPIC_ID, {"headrace.boot.id": "a b", "headrace.lease": "7"})
    text = format_meta_properties(meta)
    assert text.startswith("version=1\ncluster.id=cluster\nnode.id=3\ndirectory.id=-wEjRWeJq83-3LqYdlQyEA\n")
    assert parse_meta_properties(text) == meta


@pytest.mark.parametrize(
    ("missing", "complaint"),
    [
        ("version=1\n", "version None, only 1"),
        ("cluster.id=4L6g3nShT-eMCtK--X86sw\n", "no cluster.id"),
        ("node.id=1\n", "no node.id"),
        ("directory.id=-wEjRWeJq83-3LqYdlQyEA\n", "no directory.id"),
    ],
)
def test_what_the_properties_lack_is_named(missing: str, complaint: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=complaint):
        parse_meta_properties(META_FROM_KAFKA.replace(missing, ""))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("version=1", "version=2", "version 2, only 1"),
        ("node.id=1", "node.id=one", "'one', which is no number"),
        ("node.id=1", "node.id=-1", "'-1', which is no number"),
        ("directory.id=-", "directory.id=", "no id of 22"),
    ],
)
def test_what_is_wrong_with_the_properties_is_named(old: str, new: str, complaint: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=complaint):
        parse_meta_properties(META_FROM_KAFKA.replace(old, new))


def test_properties_are_escaped_as_java_does() -> None:
    properties = {"a key:=#": "  v\\ é😀\t\n=:"}
    from_java = "a\\ key\\:\\=\\#=\\  v\\\\ \\u00E9\\uD83D\\uDE00\\t\\n\\=\\:\n"
    assert format_properties(properties) == from_java
    assert parse_properties(from_java) == properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# comment\n! comment\n\n  # comment\n", {}),
        ("a=b", {"a": "b"}),
        ("a:b\r\nc d\re", {"a": "b", "c": "d", "e": ""}),
        ("  a \t=  b ", {"a": "b "}),
        ("a = = b", {"a": "= b"}),
        ("a=b\\\n   c\\\n  #d", {"a": "bc#d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\=b=c\\qd", {"a=b": "cqd"}),
        ("=b", {"": "b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\", {"a": "b"}),
        ("\\\n a=b", {"a": "b"}),
    ],
)
def test_all_of_javas_format_is_read(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_an_unfinished_escape_is_named() -> None:
    with pytest.raises(CorruptCheckpoint, match="four hexadecimal digits"):
        parse_properties("a=\\u12")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(texts, texts, max_size=5))
@settings(deadline=None)
def test_properties_survive(properties: dict[str, str]) -> None:
    text = format_properties(properties)
    assert text.isascii()
    assert parse_properties(text) == properties


@given(st.text(max_size=60) | st.text("0123456789 -\n\\u=:abt", max_size=60))
@settings(max_examples=300, deadline=None)
def test_junk_is_corrupt_or_read_but_never_more(text: str) -> None:
    for parse in (parse_leader_epochs, parse_offsets, parse_partition_metadata, parse_meta_properties, parse_uuid):
        with suppress(CorruptCheckpoint):
            parse(text)
