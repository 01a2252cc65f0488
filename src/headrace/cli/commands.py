"""Where each command lives, and what its help says. Data only: `headrace --help` imports none of them."""

from typing import NamedTuple

BOOTSTRAP = "127.0.0.1:9092"
"""Where commands look for a cluster when nobody says."""


class Command(NamedTuple):
    where: str
    help: str
    examples: str


TOP_EXAMPLES = """
  headrace up
  headrace topic create orders --partitions 3
  echo hello | headrace produce orders
  headrace consume orders
"""

GROUPS = {
    "topic": (
        "Create, list, describe, alter and delete topics.",
        """
  headrace topic create orders --partitions 3
  headrace topic describe orders
  headrace topic delete orders
""",
    ),
    "group": (
        "See how far consumer groups are, and move or delete their offsets.",
        """
  headrace group list
  headrace group describe billing
  headrace group reset billing --to -1h --dry-run
""",
    ),
    "cluster": (
        "See how a cluster is, and choose leaders.",
        """
  headrace cluster status
  headrace cluster elect
  headrace cluster failed
""",
    ),
    "tier": (
        "See what of tiered topics is in the object store, and check it.",
        """
  headrace tier status
  headrace tier ls orders
  headrace tier verify orders
""",
    ),
    "own": (
        "See who owns what, and own it: single readers and single writers.",
        """
  headrace own list
  headrace own claim indexers orders-0 --wait
  headrace own watch indexers
""",
    ),
    "pipeline": (
        "Jobs on Spark: topics to a table, and a look at every replica of a topic.",
        """
  headrace pipeline lake orders --to ./lake/orders --once
  headrace pipeline verify orders
""",
    ),
    "node": (
        "What can be done about a single node.",
        """
  headrace node withdraw --data data/node-1 --metadata sqlite:data/headrace.db
""",
    ),
}

COMMANDS: dict[str, Command] = {
    "up": Command(
        "headrace.cli.signatures:up",
        """Run brokers on this machine until Ctrl-C.

Each node is a child process `headrace serve`; this process serves nothing itself. Three nodes listen on --port and the
two ports after it, and a topic that nobody says otherwise about has a copy on each, as default.replication.factor is 3
then; min.insync.replicas is Kafka's 1 until you set it.

A node that dies is reported and withdrawn, so that the others take over at once. It stays down: the command that is
printed then, and with --json at the start, starts it again. Ctrl-C or SIGTERM stops all nodes cleanly, a second Ctrl-C
kills them. Without --data or --ephemeral, data is kept in ./headrace-data.

With --tier, old segments of topics that have remote.storage.enable=true go to that directory, or to that bucket.""",
        """
  headrace up
  headrace up --brokers 3
  headrace up --port 9192 --ephemeral
  headrace up --data ./data --set log.retention.hours=24
  headrace up --brokers 3 --tier ./objects
  headrace up --brokers 3 --port 0 --ephemeral --json
""",
    ),
    "serve": Command(
        "headrace.cli.signatures:serve",
        """Run one node: what `up` starts for each of its nodes, and what a service manager runs on a server.

Nodes that are given the same --metadata are one cluster: on one machine they share a file, on several machines etcd.
docs/DEPLOYING.md sets up three machines.

SIGTERM or Ctrl-C stops it cleanly: others take over what it leads, it finishes requests, flushes its files and marks
the stop, so that the next start scans nothing. A second one ends it at once. It ends by itself, with exit code 1, when
another process is registered with its number.""",
        """
  headrace serve --node-id 1 --listen 127.0.0.1:9092 --data data/node-1 \\
      --metadata sqlite:data/headrace.db --metrics 127.0.0.1:9404 \\
      --set num.partitions=3
  headrace serve --node-id 1 --listen 0.0.0.0:9092 --advertise broker1.example.org:9092 \\
      --data /var/lib/headrace --metadata etcd://etcd1:2379,etcd2:2379,etcd3:2379 \\
      --rack a --config /etc/headrace/node.properties
""",
    ),
    "node withdraw": Command(
        "headrace.cli.signatures:withdraw",
        """Let a node that has died leave the cluster at once.

Others wait for a silent node until its session ends (broker.session.timeout.ms), because it may be alive. Whoever has
seen its process end knows better: this takes its registration back, and others lead what it led within milliseconds.
`headrace up` does it by itself, a systemd unit by ExecStopPost.

It is refused while a node runs on the directory. Only the registration that the directory tells of is taken back: if
the node has been started again meanwhile, nothing changes.""",
        """
  headrace node withdraw --data data/node-1 --metadata sqlite:data/headrace.db
  headrace node withdraw --data /var/lib/headrace --metadata etcd://etcd1:2379,etcd2:2379
""",
    ),
    "topic create": Command(
        "headrace.cli.topic:create",
        "Create a topic.",
        """
  headrace topic create orders
  headrace topic create orders --partitions 12 --set retention.ms=3600000
""",
    ),
    "topic list": Command(
        "headrace.cli.topic:list_topics",
        "List all topics.",
        """
  headrace topic list
  headrace topic list --json --bootstrap 127.0.0.1:9192
""",
    ),
    "topic describe": Command(
        "headrace.cli.topic:describe",
        "Show partitions, offsets and settings of topics, of all when none is named.",
        """
  headrace topic describe
  headrace topic describe orders --json
""",
    ),
    "topic alter": Command(
        "headrace.cli.topic:alter",
        "Change settings, or add partitions.",
        """
  headrace topic alter orders --set retention.ms=86400000 --unset flush.ms
  headrace topic alter orders --partitions 24
""",
    ),
    "topic delete": Command(
        "headrace.cli.topic:delete",
        "Delete topics, with everything in them.",
        """
  headrace topic delete orders
  headrace topic delete orders payments --if-exists
""",
    ),
    "produce": Command(
        "headrace.cli.produce:produce",
        """Write records to a topic.

Records come from a file or from standard input, one per line, or are made up when --count is given. Exit code 0 means
that the broker acknowledged every record as --acks asks.""",
        """
  echo hello | headrace produce orders
  headrace produce orders lines.txt --compression zstd
  printf 'k1\\tv1\\n' | headrace produce orders --format key-value
  headrace consume a --format json | headrace produce b --format json
  headrace produce orders --count 1000000 --size 100 --rate 50000
""",
    ),
    "consume": Command(
        "headrace.cli.consume:consume",
        """Read records from a topic.

Reads to the end that the topic had when the command began, or for ever with --follow. The order is kept within a
partition. With --format json a key, value or header value that is not UTF-8 is written in base64, and a field of the
same name with _encoding says so: {"value": "/w==", "value_encoding": "base64"}.""",
        """
  headrace consume orders
  headrace consume orders --from end --follow
  headrace consume orders --from -5m --format json
  headrace consume orders --from 2026-01-31T12:00 --partition 0 --count 10
""",
    ),
    "group list": Command(
        "headrace.cli.group:list_groups",
        "List all consumer groups.",
        """
  headrace group list
  headrace group list --json
""",
    ),
    "group describe": Command(
        "headrace.cli.group:describe",
        """Show who reads what, and how far behind.

`lag` counts the records that are not read yet; `behind` is the age of the oldest of them. A group without members shows
where it would go on.""",
        """
  headrace group describe billing
  headrace group describe billing audit --json
""",
    ),
    "group reset": Command(
        "headrace.cli.group:reset",
        """Move a group that has no members to another place.

Its consumers begin there when they are started again. With --dry-run nothing is changed.""",
        """
  headrace group reset billing --to beginning
  headrace group reset billing --to 2026-01-31T12:00 --topic orders --dry-run
  headrace group reset billing --to 4711 --topic orders:3
  headrace group reset billing --to -1h
""",
    ),
    "group delete": Command(
        "headrace.cli.group:delete",
        "Delete groups that have no members, with their offsets.",
        """
  headrace group delete billing
  headrace group delete billing audit --if-exists
""",
    ),
    "cluster status": Command(
        "headrace.cli.cluster:status",
        """Show nodes and partitions: leaders, epochs, who is in sync, how far followers lag.

The lag of each follower is in records, as its leader knows it; ? means that it has not fetched yet. A guarded partition
has a new leader that does not know yet how far the log is committed, so that its offsets are not told.""",
        """
  headrace cluster status
  headrace cluster status orders --amiss
  headrace cluster status --json
""",
    ),
    "cluster elect": Command(
        "headrace.cli.cluster:elect",
        """Choose leaders.

Without --topic, the first replica of every partition leads again where it can. The cluster does that by itself every
few minutes (auto.leader.rebalance.enable). With --type unclean, a partition that has no leader gets one that may lack
acknowledged records: they are lost.""",
        """
  headrace cluster elect
  headrace cluster elect --topic orders --partition 0
  headrace cluster elect --topic orders --partition 0 --type unclean
""",
    ),
    "cluster failed": Command(
        "headrace.cli.cluster:failed",
        """Show partitions that a follower has given up, why, and since when.

A partition that cannot be followed, say because its disk fails, does not hold up the others. It is tried again with the
next leader epoch, or when the node is started again.""",
        """
  headrace cluster failed
  headrace cluster failed --json
""",
    ),
    "cluster sessions": Command(
        "headrace.cli.cluster:sessions",
        "Show who fetches from which node: followers and consumers, and the fetch sessions (KIP-227) that they have.",
        """
  headrace cluster sessions
  headrace cluster sessions --json
""",
    ),
    "cluster why": Command(
        "headrace.cli.cluster_why:why",
        """Show why this replica leads a partition, and who is passed over for what and until when.

A replica of a tiered topic that has little on its own disk comes last when a leader is chosen, until it has what
leader.election.eligible.local.log.ms or .bytes ask for.""",
        """
  headrace cluster why orders 0
  headrace cluster why orders 0 --json
""",
    ),
    "tier status": Command(
        "headrace.cli.tier:status",
        """Show what of each tiered partition is local, what is remote, and how far the copy lags.

Offsets from the first to the last, as the partition's leader tells them. A partition may be in both places: segments
stay on the disk for as long as local.retention.ms and local.retention.bytes say. The lag is what is complete and
committed, and not in the tier yet.""",
        """
  headrace tier status
  headrace tier status orders --json
""",
    ),
    "tier ls": Command(
        "headrace.cli.tier:list_segments",
        """Show the segments in the tier, and the objects that hold them.

A segment is read only if it is finished and its records are those of the leader's log. After an unclean election there
may be others, until they expire.""",
        """
  headrace tier ls
  headrace tier ls orders --json
""",
    ),
    "tier verify": Command(
        "headrace.cli.tier:verify",
        """Read all remote segments of topics, and check them: sizes, checksums, offsets, indexes.

The objects are read by this program, not by the brokers, so it needs the credentials that they have. A segment that
expires meanwhile is no problem. The exit code is 1 if there is any problem, or if a tiered partition was not checked:
no node leads it, or its leader has no tier.""",
        """
  headrace tier verify
  headrace tier verify orders --store s3://bucket/prefix
""",
    ),
    "own list": Command(
        "headrace.cli.own:list_owners",
        """Show who owns what, for how long and at which generation, and who was refused last.

A resource is a partition, such as orders-0, or any other name. It has one owner at a time in each group, and every
owner a higher generation than the one before. A resource that nobody owns is listed for as long as its last generation
is remembered.""",
        """
  headrace own list
  headrace own list indexers --json
""",
    ),
    "own watch": Command(
        "headrace.cli.own:watch",
        "Show who owns what, and then every change of it, until Ctrl-C.",
        """
  headrace own watch
  headrace own watch indexers --every 200ms --json
""",
    ),
    "own claim": Command(
        "headrace.cli.own:claim",
        """Own partitions, or anything with a name, until Ctrl-C.

Without --generation only what nobody owns is claimed: the command fails and names the owner, or with --wait it waits
its turn. With --generation it is taken over, if that is the last generation there was: `headrace own list` shows it.

It says when the ownership is lost, because a leader moved or a connection broke, and when it is regained. It ends with
exit code 1 when somebody else has taken over.""",
        """
  headrace own claim indexers orders-0
  headrace own claim indexers orders-0 orders-1 --wait
  headrace own claim indexers orders-0 --generation 7 --exclusive produce
  headrace own claim backups nightly --json
""",
    ),
    "own release": Command(
        "headrace.cli.own:release",
        """Free what a dead owner left behind, or with --evict what a living one has.

An owner that dies leaves its generation behind, and whatever it had for itself (--exclusive) stays closed for others,
for a day unless it asked otherwise. This frees it at once. The generation stays known, so that the old owner cannot
come back with it.""",
        """
  headrace own release indexers orders-0
  headrace own release indexers orders-0 --evict
""",
    ),
    "pipeline lake": Command(
        "headrace.cli.pipeline:lake",
        """Write topics to a table, as Parquet files or as a Delta table, each record once.

It runs until Ctrl-C, or with --once until all that is there now is in the table. Started again it goes on where it was:
a batch that Spark does again replaces nothing and adds nothing.

Values are JSON, or Avro by --schema. The table has a column for each field, and besides _key, _topic, _partition,
_offset and _timestamp; the rows of a day lie in a directory event_date=DAY. Records that are no rows go to the
dead-letter topic, with the reason in a header. Without --schema the schema is inferred from a sample, shown, and kept.

It needs headrace[spark,lake], on every machine of the Spark cluster.""",
        """
  headrace pipeline lake orders --to ./lake/orders --once
  headrace pipeline lake orders refunds --to ./lake/sales --format delta --event-time placed_at
  headrace pipeline lake orders --to s3://lake/orders --checkpoint ./checkpoints/orders --schema orders.avsc
  headrace pipeline lake orders --to ./lake/orders --every 1m --group lake --master spark://host:7077
  spark-submit "$(python -m headrace.cli.submit --path)" lake orders --to ./lake/orders
""",
    ),
    "pipeline verify": Command(
        "headrace.cli.pipeline:verify",
        """Read all replicas of a topic, and its segments in the tier, and check and compare them.

Checksums, offsets without gaps, leader epochs that never fall, no sequence of a producer twice, and replicas that are
equal, below the high watermark: what is not committed yet is left out. A compacted topic may have gaps, and its
replicas differ; they are not compared. Nodes are asked for their replicas themselves, and objects of the tier are read
by Spark's tasks, which need the credentials that the brokers have.

The exit code is 1 if there is any finding, or if something could not be read.""",
        """
  headrace pipeline verify orders
  headrace pipeline verify orders --json --report orders.json
  headrace pipeline verify orders --master spark://host:7077 --conf spark.executor.memory=2g
""",
    ),
    "sim": Command(
        "headrace.cli.sim:sim",
        """Search for broken promises in simulated clusters.

Each seed is a cluster of real nodes with real clients on virtual time, in memory, to which everything happens that the
promises allow: cut links, pauses, crashes, power loss, disk errors, slow stores, wrong clocks. A seed goes the same
way every time. One that breaks a promise ends the search: its story is printed, as short as it can be made, and the
exit code is 1.""",
        """
  headrace sim
  headrace sim --seed 42
  headrace sim --seeds 1000
  headrace sim --minutes 10
""",
    ),
}


def paragraphs(text: str) -> str:
    """Lines of a paragraph are one: the reader's terminal breaks them."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def examples(lines: str) -> str:
    return f"Examples:\n{lines.rstrip()}"
