import json
from typing import Any

import pytest

from tests.cli.programs import headrace


def as_json(*arguments: str) -> Any:
    done = headrace(*arguments, "--json")
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.count(b"\n") == 1
    return json.loads(done.stdout)


def test_a_topic_is_created_listed_described_altered_and_deleted(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    made = as_json("topic", "create", topic, "--partitions", "2", "--set", "retention.ms=1000", *at)
    assert (made["name"], made["partitions"], len(made["id"])) == (topic, 2, 22)
    assert made in as_json("topic", "list", *at)["topics"]

    as_json("topic", "alter", topic, "--partitions", "3", "--set", "flush.ms=5", "--unset", "retention.ms", *at)
    (described,) = as_json("topic", "describe", topic, *at)["topics"]
    assert (described["name"], described["id"], described["settings"]) == (topic, made["id"], {"flush.ms": "5"})
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    assert described["partitions"][0] == {
        "partition": 0,
        "leader": 1,
        "leader_epoch": described["partitions"][0]["leader_epoch"],
        "replicas": [1],
        "isr": [1],
        "offline": [],
        "start_offset": 0,
        "end_offset": 0,
    }

    assert as_json("topic", "delete", topic, *at) == {"deleted": [topic]}
    assert topic not in [one["name"] for one in as_json("topic", "list", *at)["topics"]]


def test_people_read_tables(bootstrap: str, topic: str) -> None:
    created = headrace("topic", "create", topic, "--partitions", "2", "--bootstrap", bootstrap)
    assert created.stdout.decode() == f"{topic} is there, partitions: 2\n"
    listed = headrace("topic", "list", "--bootstrap", bootstrap).stdout.decode().splitlines()
    assert listed[0].split() == ["topic", "partitions", "id"]
    assert any(line.split()[:2] == [topic, "2"] for line in listed)
    described = headrace("topic", "describe", topic, "--bootstrap", bootstrap).stdout.decode().splitlines()
    assert described[0].startswith(f"{topic}  id ")
    assert described[1].split()[:3] == ["partition", "leader", "epoch"]
    assert len(described) == 4


def test_what_is_there_already_is_a_failure_unless_said_otherwise(bootstrap: str, topic: str) -> None:
    create = ("topic", "create", topic, "--bootstrap", bootstrap)
    assert headrace(*create).returncode == 0
    again = headrace(*create)
    assert (again.returncode, again.stdout) == (1, b"")
    assert topic in again.said
    assert headrace(*create, "--if-not-exists").returncode == 0


def test_what_is_not_there_is_a_failure_unless_said_otherwise(bootstrap: str, topic: str) -> None:
    delete = ("topic", "delete", topic, "--bootstrap", bootstrap)
    for command in (["delete"], ["describe"], ["alter", "--partitions", "9"], ["alter", "--set", "flush.ms=1"]):
        done = headrace("topic", *command, topic, "--bootstrap", bootstrap)
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.said == f"headrace: topic {topic!r} does not exist [UNKNOWN_TOPIC_OR_PARTITION, 3]"
    assert headrace(*delete, "--if-exists").stdout == b"deleted: nothing\n"


def test_what_can_be_deleted_is_and_the_rest_is_named(bootstrap: str, topic: str) -> None:
    assert headrace("topic", "create", topic, "--bootstrap", bootstrap).returncode == 0
    done = headrace("topic", "delete", "a-way", topic, "no-where", "--json", "--bootstrap", bootstrap)
    assert (done.returncode, json.loads(done.stdout)) == (1, {"deleted": [topic]})
    assert "'a-way' does not exist" in done.said and "'no-where' does not exist" in done.said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "bad name"], "bad name"),
        (["create", "t-none", "--partitions", "0"], "artition"),
        (["create", "t-three", "--replication-factor", "3"], "eplic"),
        (["create", "t-set", "--set", "retention.ms=soon"], "retention.ms"),
        (["create", "t-unknown", "--set", "retentoin.ms=1"], "retention.ms"),
    ],
)
def test_what_the_broker_refuses_is_its_sentence(bootstrap: str, arguments: list[str], words: str) -> None:
    done = headrace("topic", *arguments, "--bootstrap", bootstrap)
    assert (done.returncode, done.stdout) == (1, b"")
    assert words in done.said
