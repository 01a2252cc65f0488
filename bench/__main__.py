"""`make bench`: Apache Kafka and Headrace on this machine, driven by the same programs in interleaved rounds.

python -m bench [--quick] [--only start,produce,one,catch-up,idle] [--broker kafka|headrace] [--write]
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bench.native import OUT
from bench.plot import svg
from bench.raw import RawClient
from bench.report import markdown, replace_figures
from bench.results import HEADRACE, Results
from bench.rounds import Workload, run
from bench.sessions import cpu_share, idle_partitions, stall_during_scrapes, wait_until_quiet
from bench.startup import machine, start_up
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
SECTIONS = ("start", "produce", "one", "catch-up", "idle")


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
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    makers = {"kafka": kafka_broker, "headrace": headrace_broker}
    chosen = [options.broker] if options.broker else list(makers)
    brokers = [makers[name](scratch / name) for name in chosen]
    this = Run(brokers, scratch, options.quick)
    steps = dict(zip(SECTIONS, (this.start, this.produce, this.one_record, this.catch_up, this.idle), strict=True))
    wanted = options.only.split(",")
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
        shutil.rmtree(scratch)
    tell(this.results, write=options.write)


def tell(results: Results, *, write: bool) -> None:
    figures, plot = markdown(results), svg(results.goals())
    print(figures)
    (OUT / "performance.md").write_text(figures + "\n")
    (OUT / "performance.svg").write_text(plot)
    print(f"\nwritten to {OUT / 'performance.md'} and {OUT / 'performance.svg'}", file=sys.stderr)
    if write:
        replace_figures(DOCUMENT, figures)
        PLOT.write_text(plot)


if __name__ == "__main__":
    main(sys.argv[1:])
