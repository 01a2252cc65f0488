import json
import os
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.testing import Cluster
from tests.cli.programs import PATIENCE_S, PROGRAM, headrace


def produce(bootstrap: str, topic: str, data: bytes, *arguments: str) -> None:
    done = headrace("produce", topic, *arguments, "--bootstrap", bootstrap, stdin=data)
    assert done.returncode == 0, done.stderr.decode()


def consume(bootstrap: str, topic: str, *arguments: str) -> bytes:
    done = headrace("consume", topic, *arguments, "--bootstrap", bootstrap)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def create(bootstrap: str, topic: str, partitions: int) -> None:
    done = headrace("topic", "create", topic, "--partitions", str(partitions), "--bootstrap", bootstrap)
    assert done.returncode == 0, done.stderr.decode()


def records(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_lines_come_back_in_order(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"one\ntwo\n\nthree")
    assert consume(bootstrap, topic) == b"one\ntwo\n\nthree\n"
    assert consume(bootstrap, topic, "--from", "2", "--count", "1") == b"\n"
    assert consume(bootstrap, topic, "--from", "end") == b""
    assert consume(bootstrap, topic, "--count", "0") == b""


def test_a_file_is_read_like_standard_input(bootstrap: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"a\nb\n")
    produce(bootstrap, topic, b"ignored\n", str(tmp_path / "lines"))
    assert consume(bootstrap, topic) == b"a\nb\n"


def test_keys_are_kept_and_keep_their_partition(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 4)
    lines = [b"key-%d\tvalue-%d\n" % (number % 7, number) for number in range(50)]
    produce(bootstrap, topic, b"".join(lines), "--format", "key-value")
    assert sorted(consume(bootstrap, topic, "--format", "key-value").splitlines(keepends=True)) == sorted(lines)
    read = records(consume(bootstrap, topic, "--json"))
    assert len({(record["key"], record["partition"]) for record in read}) == 7
    assert len({record["partition"] for record in read}) > 1


def test_another_separator_is_possible(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"k=v=w\n", "--key-separator", "=")
    assert consume(bootstrap, topic, "--format", "key-value", "--key-separator", " : ") == b"k : v=w\n"


def test_a_separator_has_a_character(bootstrap: str, topic: str) -> None:
    done = headrace("produce", topic, "--key-separator", "", "--bootstrap", bootstrap, stdin=b"kv\n")
    assert (done.returncode, done.said) == (2, "headrace: --key-separator takes at least one character")


def test_json_goes_through_a_pipe_unharmed(bootstrap: str, topic: str) -> None:
    written = b'{"key": "/w==", "key_encoding": "base64", "value": null, "headers": [{"key": "h", "value": "x"}]}\n'
    produce(bootstrap, topic, written + b'{"value": "\xc3\xa4"}\n', "--format", "json")
    read = consume(bootstrap, topic, "--format", "json")
    first, second = records(read)
    assert (first["topic"], first["partition"], first["offset"]) == (topic, 0, 0)
    assert (first["key"], first["key_encoding"], first["value"]) == ("/w==", "base64", None)
    assert first["headers"] == [{"key": "h", "value": "x"}]
    assert (second["key"], second["value"], second["headers"]) == (None, "ä", [])
    assert abs(second["timestamp"] / 1000 - datetime.now(UTC).timestamp()) < 3600

    produce(bootstrap, f"{topic}-copy", read, "--format", "json")
    again = records(consume(bootstrap, f"{topic}-copy", "--format", "json"))
    same = ("key", "value", "headers", "offset")
    assert [[record[name] for name in same] for record in again] == [
        [record[name] for name in same] for record in (first, second)
    ]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_made_up_records_arrive_with_every_compression(bootstrap: str, topic: str, compression: str) -> None:
    produce(bootstrap, topic, b"", "--count", "1200", "--size", "64", "--compression", compression)
    values = consume(bootstrap, topic).splitlines()
    assert len(values) == 1200
    assert {len(value) for value in values} == {64}
    assert values[1199].startswith(b"1199 ")


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_works(bootstrap: str, topic: str, acks: str) -> None:
    produce(bootstrap, topic, b"x\ny\n", "--acks", acks)
    produce(bootstrap, topic, b"z\n", "--acks", "all")
    assert consume(bootstrap, topic) == b"x\ny\nz\n"


def test_produce_says_what_it_did(bootstrap: str, topic: str) -> None:
    done = headrace("produce", topic, "--count", "10", "--size", "5", "--json", "--bootstrap", bootstrap)
    told = json.loads(done.stdout)
    assert (told["topic"], told["records"], told["bytes"], told["acks"]) == (topic, 10, 50, "all")
    spoken = headrace("produce", topic, "--count", "10", "--size", "5", "--bootstrap", bootstrap)
    assert (spoken.stdout, spoken.said.partition(" in ")[0]) == (b"", "10 records, 50 bytes,")


def test_reading_begins_at_a_time(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"old\n")
    (old,) = records(consume(bootstrap, topic, "--json"))
    after = datetime.fromtimestamp((old["timestamp"] + 1) / 1000, UTC).isoformat()
    produce(bootstrap, topic, b"new\n")
    assert consume(bootstrap, topic, "--from", after) == b"new\n"
    assert consume(bootstrap, topic, "--from", "-1h") == b"old\nnew\n"
    assert consume(bootstrap, topic, "--from", "2099-01-01") == b""


def test_one_partition_can_be_read_alone(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 3)
    for partition in range(3):
        produce(bootstrap, topic, b"in %d\n" % partition, "--partition", str(partition))
    assert consume(bootstrap, topic, "--partition", "1") == b"in 1\n"
    assert sorted(consume(bootstrap, topic, "--partition", "0", "--partition", "2").splitlines()) == [b"in 0", b"in 2"]
    absent = headrace("consume", topic, "--partition", "3", "--bootstrap", bootstrap)
    assert absent.returncode == 1
    assert absent.said == f"headrace: topic {topic!r} has 3 partitions; there is no partition 3"


def test_an_offset_that_is_not_there_is_replaced_by_the_nearest_and_said(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"only\n")
    done = headrace("consume", topic, "--from", "99", "--bootstrap", bootstrap)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.said == "headrace: offset 99 is not in partition [0]; the nearest is taken there"


def test_following_waits_for_what_is_not_written_yet(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 1)
    command = [PROGRAM, "consume", topic, "--from", "end", "--follow", "--count", "2", "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        produced = 0
        while follower.poll() is None and produced < 500:  # it may begin to read after the first ones
            produce(bootstrap, topic, b"line %d\n" % produced)
            produced += 1
        assert follower.wait(PATIENCE_S) == 0
        first, second = (int(line.split()[1]) for line in follower.stdout.read().splitlines())
        assert second == first + 1


def test_ctrl_c_ends_a_follower_without_a_word(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"line\n")
    command = [PROGRAM, "consume", topic, "--follow", "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
        assert follower.stdout is not None and follower.stderr is not None
        assert follower.stdout.readline() == b"line\n"
        follower.send_signal(signal.SIGINT)
        assert follower.wait(PATIENCE_S) == 0
        assert follower.stderr.read() == b""


def test_a_reader_that_has_seen_enough_is_no_error(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"", "--count", "20000", "--size", "100")
    command = [PROGRAM, "consume", topic, "--bootstrap", bootstrap]
    read_end, write_end = os.pipe()
    with subprocess.Popen(command, stdout=write_end, stderr=subprocess.PIPE) as consumer:
        os.close(write_end)
        assert os.read(read_end, 1)
        os.close(read_end)
        assert consumer.wait(PATIENCE_S) == 0
        assert consumer.stderr is not None
        assert consumer.stderr.read() == b""


def test_a_line_that_is_no_record_names_its_number(bootstrap: str, topic: str) -> None:
    done = headrace("produce", topic, "--format", "key-value", "--bootstrap", bootstrap, stdin=b"k\tv\nplain\n")
    assert done.returncode == 1
    assert done.said == r"headrace: line 2: there is no '\t' between key and value in 'plain'"


def test_a_record_that_is_too_large_is_a_sentence(bootstrap: str, topic: str) -> None:
    done = headrace("produce", topic, "--count", "1", "--size", "2MB", "--bootstrap", bootstrap)
    assert done.returncode == 1
    assert "MESSAGE_TOO_LARGE" in done.said or "RECORD_LIST_TOO_LARGE" in done.said


def test_a_topic_that_is_not_there_cannot_be_read(bootstrap: str, topic: str) -> None:
    done = headrace("consume", topic, "--bootstrap", bootstrap)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.said == f"headrace: topic {topic!r} does not exist [UNKNOWN_TOPIC_OR_PARTITION, 3]"


def test_a_topic_that_nobody_makes_cannot_be_written_to(topic: str) -> None:
    with Cluster({"auto.create.topics.enable": "false"}) as cluster:
        done = headrace("produce", topic, "--bootstrap", cluster.bootstrap, stdin=b"x\n")
    assert (done.returncode, done.stdout) == (1, b"")
    assert f"headrace: topic {topic!r} does not exist" in done.stderr.decode()
