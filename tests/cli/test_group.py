"""`headrace group`, against a broker whose groups are made by stock clients."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cli.programs import headrace, wait_until


def as_json(*arguments: str) -> Any:
    done = headrace(*arguments, "--json")
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic of two partitions with ten records in each, one a minute, years ago."""
    assert headrace("topic", "create", topic, "--partitions", "2", "--bootstrap", bootstrap).returncode == 0
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(2):
        for number in range(10):
            producer.produce(topic, str(number), partition=partition, timestamp=1_700_000_000_000 + number * 60_000)
    assert producer.flush(60) == 0
    return topic


@contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1) is not None or consumer.assignment(), "the member has partitions")
        yield consumer
    finally:
        consumer.close()


def commit(bootstrap: str, group: str, topic: str, offsets: list[int]) -> None:
    """Without ever being a member."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def test_a_group_with_a_member_is_listed_and_described(bootstrap: str, filled: str) -> None:
    group = f"g-{filled}"
    with member(bootstrap, group, filled) as consumer:
        consumer.commit(offsets=[TopicPartition(filled, 0, 4)], asynchronous=False)
        listed = as_json("group", "list", "--bootstrap", bootstrap)["groups"]
        assert {"group": group, "state": "Stable", "protocol_type": "consumer"} in listed
        (described,) = as_json("group", "describe", group, "--bootstrap", bootstrap)["groups"]
        assert (described["state"], described["type"], len(described["members"])) == ("Stable", "consumer", 1)
        first, second = described["partitions"]
        assert (first["committed"], first["end"], first["lag"], first["client"]) == (4, 10, 6, "reader")
        assert first["lag_seconds"] > 365 * 86_400
        assert (second["committed"], second["lag"], second["lag_seconds"]) == (None, None, None)
        people = headrace("group", "describe", group, "--bootstrap", bootstrap).stdout.decode().splitlines()
        assert people[0].startswith(f"{group}  Stable, consumer by ")
        assert people[1].split() == ["topic", "partition", "committed", "end", "lag", "behind", "client", "host"]
        refused = headrace("group", "reset", group, "--to", "end", "--bootstrap", bootstrap)
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert "has 1 members (reader): stop them first" in refused.said
        refused = headrace("group", "delete", group, "--bootstrap", bootstrap)
        assert refused.returncode == 1 and "has members: stop them first" in refused.said


@pytest.mark.parametrize(
    ("place", "after"),
    [
        ("beginning", [0, 0]),
        ("end", [10, 10]),
        ("7", [7, 7]),
        ("99", [10, 10]),
        ("2023-11-14T22:16:20+00:00", [3, 3]),
        ("-1h", [10, 10]),
    ],
    ids=["beginning", "end", "offset", "offset-too-high", "time", "ago"],
)
def test_a_group_is_moved(bootstrap: str, filled: str, place: str, after: list[int]) -> None:
    group = f"g-{filled}"
    commit(bootstrap, group, filled, [2, 5])
    reset = ("group", "reset", group, "--to", place, "--bootstrap", bootstrap)
    tried = as_json(*reset, "--dry-run")
    assert [(row["from"], row["to"]) for row in tried["offsets"]] == list(zip([2, 5], after, strict=True))
    assert committed(bootstrap, group) == [2, 5], "a dry run changes nothing"
    as_json(*reset)
    assert committed(bootstrap, group) == after


def committed(bootstrap: str, group: str) -> list[int | None]:
    (described,) = as_json("group", "describe", group, "--bootstrap", bootstrap)["groups"]
    return [partition["committed"] for partition in described["partitions"]]


def test_one_partition_is_moved_and_a_new_group_begins_somewhere(bootstrap: str, filled: str) -> None:
    group = f"g-{filled}"
    as_json("group", "reset", group, "--to", "3", "--topic", f"{filled}:1", "--bootstrap", bootstrap)
    (described,) = as_json("group", "describe", group, "--bootstrap", bootstrap)["groups"]
    assert [(p["partition"], p["committed"]) for p in described["partitions"]] == [(1, 3)]
    assert described["state"] == "Empty"


def test_a_group_without_members_is_deleted(bootstrap: str, filled: str) -> None:
    group = f"g-{filled}"
    commit(bootstrap, group, filled, [1, 1])
    assert as_json("group", "delete", group, "--bootstrap", bootstrap) == {"deleted": [group]}
    gone = headrace("group", "delete", group, "--bootstrap", bootstrap)
    assert (gone.returncode, gone.said) == (1, f"headrace: group {group!r} does not exist [GROUP_ID_NOT_FOUND, 69]")
    assert headrace("group", "delete", group, "--if-exists", "--bootstrap", bootstrap).stdout == b"deleted: nothing\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reset", "nobody", "--to", "beginning"], "group 'nobody' has no offsets; give --topic"),
        (["reset", "nobody", "--to", "soon"], "--to takes beginning, end, an offset, a time"),
        (["reset", "nobody", "--to", "end", "--topic", "a:b"], "--topic takes TOPIC or TOPIC:PARTITION, not 'a:b'"),
        (["describe", "nobody"], "group 'nobody' does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(bootstrap: str, arguments: list[str], words: str) -> None:
    done = headrace("group", *arguments, "--bootstrap", bootstrap)
    assert done.returncode in (1, 2) and words in done.said
    assert b"Traceback" not in done.stderr
