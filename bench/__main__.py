"""`make bench`: Apache Kafka and Headrace on this machine, driven by the same programs in interleaved rounds.

python -m bench [--quick] [--broker kafka|headrace] [--write]
                [--only start,produce,one,catch-up,idle,cluster,owners,tier,spark]
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.cluster import ClusterRun
from bench.cluster_report import cluster_markdown
from bench.native import OUT
from bench.owners import SETTINGS as OWNERS_SETTINGS
from bench.owners import OwnersResults, measure, owners_markdown
from bench.plot import svg
from bench.raw import RawClient
from bench.report import CLUSTER, ONE_NODE, OWNERS, SPARK, TIER, markdown, replace_figures
from bench.results import HEADRACE, Goal, Results
from bench.rounds import Workload, run
from bench.sessions import cpu_share, idle_partitions, stall_during_scrapes, wait_until_quiet
from bench.spark import measure as measure_spark
from bench.spark import spark_markdown
from bench.startup import machine, start_up
from bench.tier import measure as measure_tier
from bench.tier import tier_markdown
from bench.workloads import (
    CATCH_UP_TOPIC,
    PARTITIONS,
    catch_up_workloads,
    fill_for_catch_up,
    one_record_workloads,
    produce_workloads,
)
from tests.servers.headrace import headrace_broker
from tests.servers.kafka import kafka_broker
from tests.servers.process import BrokerProcess

DOCUMENT = Path("docs/PERFORMANCE.md")
PLOT = Path("docs/performance.svg")
CLUSTER_PLOT = Path("docs/performance-cluster.svg")
OWNERS_PLOT = Path("docs/performance-owners.svg")
TIER_PLOT = Path("docs/performance-tier.svg")
SPARK_PLOT = Path("docs/performance-spark.svg")
ONE_NODE_SECTIONS = ("start", "produce", "one", "catch-up", "idle")
CLUSTER_SECTION = "cluster"
OWNERS_SECTION = "owners"
TIER_SECTION = "tier"
SPARK_SECTION = "spark"
SECTIONS = (*ONE_NODE_SECTIONS, CLUSTER_SECTION, OWNERS_SECTION, TIER_SECTION, SPARK_SECTION)
MAKERS = {"kafka": kafka_broker, "headrace": headrace_broker}


class Run:
    """One benchmark, section after section, all brokers up at the same time and one at a time driven."""

    def __init__(self, brokers: list[BrokerProcess], scratch: Path, quick: bool) -> None:
        self.brokers = brokers
        self.scratch = scratch
        self.quick = quick
        rounds = 1 if quick else 3
        self.results = Results(machine(), rounds=rounds, warm_up=1)

    def start(self) -> None:
        for broker in self.brokers:
            self.results.start_up[broker.name] = start_up(broker, 1 if self.quick else 3)

    def produce(self) -> None:
        self._load(produce_workloads(self.scratch, 200 if self.quick else 500))

    def one_record(self) -> None:
        self._load(one_record_workloads(self.scratch, 0.5 if self.quick else 1))

    def catch_up(self) -> None:
        megabytes = 500 if self.quick else 2_000
        for broker in self.brokers:
            fill_for_catch_up(broker, self.scratch, megabytes)
        for workload in catch_up_workloads(megabytes):
            self._measure(workload)
        self._delete(CATCH_UP_TOPIC)

    def after_load(self) -> None:
        for broker in self.brokers:
            wait_until_quiet(broker)
            self.results.rss_after_load[broker.name] = broker.rss_bytes()
            self.results.idle_cpu_share[broker.name] = cpu_share(broker, 5 if self.quick else 10)

    def idle(self) -> None:
        """Apache Kafka opens a file per partition, of which a process here may have 20,000: it stops at 10,000."""
        rounds, round_s = self.results.rounds, 1.5 if self.quick else 3.0
        for broker in self.brokers:
            measured = self.results.idle.setdefault(broker.name, [])
            measured += [idle_partitions(broker, count, rounds, round_s) for count in (1_000, 10_000)]
            if broker.metrics_port is not None:
                self.results.stall = stall_during_scrapes(broker)
            broker.stop()
            self.results.restart_s[broker.name] = broker.start()
            if broker.name == HEADRACE:
                measured.append(idle_partitions(broker, 100_000, rounds, round_s))

    def _load(self, workloads: Iterable[Workload]) -> None:
        rows = list(workloads)
        for topic in dict.fromkeys(row.topic for row in rows):
            for broker in self.brokers:
                with RawClient(broker.port) as client:
                    client.create_topic(topic, PARTITIONS)
            for row in rows:
                if row.topic == topic:
                    self._measure(row)
            self._delete(topic)

    def _measure(self, workload: Workload) -> None:
        self.results.measured.append(run(workload, self.brokers, self.results.rounds, self.results.warm_up))

    def _delete(self, topic: str) -> None:
        for broker in self.brokers:
            with RawClient(broker.port) as client:
                client.delete_topic(topic)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", default=bool(os.environ.get("BENCH_QUICK")))
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas between them")
    parser.add_argument("--broker", choices=("kafka", "headrace"), help="one of them alone")
    parser.add_argument("--write", action="store_true", help=f"put the figures into {DOCUMENT} and {PLOT}")
    return parser.parse_args(words)


def main(words: list[str]) -> None:
    options = parse(words)
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(SECTIONS):
        sys.exit(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    chosen = [options.broker] if options.broker else ["kafka", "headrace"]
    try:
        if set(wanted) & set(ONE_NODE_SECTIONS):
            results = one_node(scratch, chosen, wanted, options.quick)
            tell("performance", ONE_NODE, markdown(results), results.goals(), PLOT if options.write else None)
        if CLUSTER_SECTION in wanted:
            print(f"{CLUSTER_SECTION}:", file=sys.stderr, flush=True)
            cluster = ClusterRun(scratch, chosen, machine(), options.quick).run()
            figures = cluster_markdown(cluster)
            tell("performance-cluster", CLUSTER, figures, cluster.goals(), CLUSTER_PLOT if options.write else None)
        if OWNERS_SECTION in wanted:
            print(f"{OWNERS_SECTION}:", file=sys.stderr, flush=True)
            owners = owners_of(scratch, chosen, options.quick)
            plot = OWNERS_PLOT if options.write else None
            tell("performance-owners", OWNERS, owners_markdown(owners), owners.goals(), plot)
        if TIER_SECTION in wanted and "headrace" in chosen:
            print(f"{TIER_SECTION}:", file=sys.stderr, flush=True)
            tier = measure_tier(scratch, machine(), options.quick)
            tell("performance-tier", TIER, tier_markdown(tier), tier.goals(), TIER_PLOT if options.write else None)
        if SPARK_SECTION in wanted and not options.broker:
            print(f"{SPARK_SECTION}:", file=sys.stderr, flush=True)
            spark = measure_spark(scratch, machine(), options.quick)
            plot = SPARK_PLOT if options.write else None
            tell("performance-spark", SPARK, spark_markdown(spark), spark.goals(), plot)
    finally:
        shutil.rmtree(scratch)


def one_node(scratch: Path, chosen: Sequence[str], wanted: Sequence[str], quick: bool) -> Results:
    brokers = [MAKERS[name](scratch / name, {}) for name in chosen]
    this = Run(brokers, scratch, quick)
    parts = (this.start, this.produce, this.one_record, this.catch_up, this.idle)
    steps = dict(zip(ONE_NODE_SECTIONS, parts, strict=True))
    try:
        if "start" not in wanted:
            for broker in brokers:
                broker.start()
        for name, step in steps.items():
            if name == "idle" and {"produce", "one", "catch-up"} & set(wanted):
                this.after_load()
            if name in wanted:
                print(f"{name}:", file=sys.stderr, flush=True)
                step()
    finally:
        for broker in brokers:
            broker.kill()
    return this.results


def owners_of(scratch: Path, chosen: Sequence[str], quick: bool) -> OwnersResults:
    brokers = [MAKERS[name](scratch / f"{name}-owners", OWNERS_SETTINGS) for name in chosen]
    try:
        for broker in brokers:
            broker.start()
        return measure(brokers, machine(), quick)
    finally:
        for broker in brokers:
            broker.kill()


def tell(name: str, whose: str, figures: str, goals: Sequence[Goal], plot: Path | None) -> None:
    """Prints the figures; with a place for the plot also puts them into the document, where only theirs change."""
    print(figures)
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.md").write_text(figures + "\n")
    (OUT / f"{name}.svg").write_text(svg(goals))
    print(f"\nwritten to {OUT / name}.md and .svg", file=sys.stderr)
    if plot is not None:
        replace_figures(DOCUMENT, whose, figures)
        plot.write_text(svg(goals))


if __name__ == "__main__":
    main(sys.argv[1:])
