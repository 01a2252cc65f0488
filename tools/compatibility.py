"""docs/COMPATIBILITY.md from the API table and the settings: `python -m tools.compatibility [--write]`."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.config import BROKER_SETTINGS, TOPIC_SETTINGS
from headrace.settings import LONG_MAX, Setting, render
from headrace.wire.apis import APIS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "COMPATIBILITY.md"

KAFKA_APIS: Mapping[str, tuple[str, ...]] = {
    "consumer groups": (
        "OffsetCommit",
        "OffsetFetch",
        "JoinGroup",
        "Heartbeat",
        "LeaveGroup",
        "SyncGroup",
        "DescribeGroups",
        "ListGroups",
        "DeleteGroups",
        "OffsetDelete",
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
    ),
    "transactions": (
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "WriteTxnMarkers",
        "TxnOffsetCommit",
        "DescribeProducers",
        "DescribeTransactions",
        "ListTransactions",
    ),
    "authentication, permissions and quotas": (
        "SaslHandshake",
        "SaslAuthenticate",
        "DescribeAcls",
        "CreateAcls",
        "DeleteAcls",
        "DescribeUserScramCredentials",
        "AlterUserScramCredentials",
        "DescribeClientQuotas",
        "AlterClientQuotas",
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
    ),
    "replicas": (
        "ElectLeaders",
        "AlterPartitionReassignments",
        "ListPartitionReassignments",
        "AlterReplicaLogDirs",
        "AlterPartition",
    ),
    "share groups, streams groups and telemetry": (
        "ShareGroupHeartbeat",
        "ShareGroupDescribe",
        "ShareFetch",
        "ShareAcknowledge",
        "StreamsGroupHeartbeat",
        "StreamsGroupDescribe",
        "GetTelemetrySubscriptions",
        "PushTelemetry",
        "ListConfigResources",
    ),
}
"""What Kafka 4.3 offers to clients, by purpose, beyond the core; what the API table holds is left out."""

HEAD = """\
# Compatibility

This page is generated from the table by which the broker works (`src/headrace/wire/apis.py`) and from its settings
(`src/headrace/config.py`): `make docs` writes it, a test keeps it fresh.

Headrace speaks the Kafka protocol. A client asks for the versions below (ApiVersions) and uses the newest that both
know. Records are magic 2 (Kafka 0.11 and newer), with gzip, snappy, lz4, zstd or no compression.
"""

CLIENTS = """\
## Clients

librdkafka (confluent-kafka and kcat), kafka-python, aiokafka, kafkajs and Apache Kafka's own clients for Java are
tested with every change. franz-go 1.22 was tried by hand: idempotent producers, groups, transactions that read, process
and write, and ownership by client.id work.

librdkafka 2.16 may hang in `send_offsets_to_transaction`, beyond the limit of the call, when the group's coordinator
dies: with Headrace and, by its issues 5511 and 5456, with any broker. It remembers the coordinator of a group, and goes
on waiting for it after it has given up that connection itself: because all brokers that it was connected to went away
at once and it began again with its bootstrap list ("re-bootstrap"), or because the dead node is not listed in Metadata
any more. No request is under way then, and only another connection that comes or goes ends it. A producer that is
stopped and started again with the same `transactional.id` goes on: what was open is aborted.
"""

TIER = """\
## Tiered storage

Segments in the tier are one object each, in a format of Headrace; Kafka's plugins for remote storage are not loaded.
Directories and S3 (with conditional writes) are tested; Google Cloud Storage (`gs://`) and Azure (`az://`) go through
the same library, and are not tested.

Objects are created and never overwritten: by a link in a directory, by a conditional request (`If-None-Match`) in a
bucket. A segment above 64 MiB goes up in parts there, and the library has no condition for the request that completes
them: instead it is asked before whether the name is taken. A second writer of that name does not exist: every name ends
with 128 random bits that its only writer has drawn for this one copy, and that are in the manifest before the copy
begins. Manifests, which are small, are always conditional.
"""


def page() -> str:
    return "\n".join([HEAD, *_apis(), "", *_not_spoken(), "", CLIENTS, TIER, *_settings(), ""])


def _apis() -> Iterator[str]:
    yield "## APIs"
    yield ""
    yield "| key | API | versions | known gaps |"
    yield "|---|---|---|---|"
    for key, api in sorted(APIS.items()):
        versions = "between nodes only" if api.advertised is None else _range(api.advertised)
        yield f"| {key} | {api.name} | {versions} | {' '.join(api.gaps)} |"


def _range(versions: range) -> str:
    return f"{versions[0]}" if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"


def _not_spoken() -> Iterator[str]:
    yield "## Not spoken"
    yield ""
    yield "These are not advertised; a client that sends one all the same is disconnected, as by Kafka."
    yield ""
    spoken = {api.name for api in APIS.values()}
    for purpose, names in KAFKA_APIS.items():
        missing = [name for name in names if name not in spoken]
        if missing:
            yield f"- {purpose}: {', '.join(missing)}"


def _settings() -> Iterator[str]:
    yield "## Settings"
    yield ""
    yield "Names and defaults are Kafka's. A setting is given to a node by `--set`, to a topic when it is created or"
    yield "altered. A name that is not listed is refused with a sentence."
    for title, settings in (("Topic settings", TOPIC_SETTINGS), ("Broker settings", BROKER_SETTINGS)):
        yield ""
        yield f"### {title}"
        yield ""
        yield "| setting | default | |"
        yield "|---|---|---|"
        for setting in sorted(settings.values(), key=lambda setting: setting.name):
            yield f"| `{setting.name}` | {_default(setting)} | {_remark(setting)} |"


def _default(setting: Setting) -> str:
    if setting.default == LONG_MAX:
        return "no limit"
    return render(setting.default) or "none"


def _remark(setting: Setting) -> str:
    refused = ", ".join(setting.not_yet)
    return f"{setting.documentation} Refused: {refused}." if refused else setting.documentation


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        PAGE.write_text(page())
        return 0
    print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
