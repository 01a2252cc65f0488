"""How hard property tests search.

`make test` runs the "default" profile: the same examples every time, so that a failure is this change's. `make hunt`
runs "hunt": new random examples in every run, HUNT_FACTOR times as many, and the tests of tests/hunt besides. What a
hunt finds becomes an @example or a test of its own.
"""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
HUNT_FACTOR = int(os.environ.get("HUNT_FACTOR", "50"))

settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("hunt", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
settings.load_profile(PROFILE)

# A shell that runs the tests in the background has them ignore Ctrl-C, and every program that they start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = [] if PROFILE == "hunt" else ["hunt"]

LONG = (
    "spark/jvm/test_drivers.py",
    "cluster/test_chaos.py",
    "pipeline/jvm/test_masters.py",
    "cluster/test_tier_trouble.py",
    "pipeline/jvm/test_lake.py",
    "pipeline/jvm/test_verify.py",
    "spark/jvm/test_sink.py",
    "spark/jvm/test_tier.py",
    "cluster/test_tier_wiped_node.py",
    "interop/test_own.py",
    "cluster/test_own_paused.py",
    "interop/test_every_client.py",
    "interop/test_groups.py",
    "sim/test_planted.py",
    "sim/test_planted_tier.py",
    "sim/test_coverage.py",
    "sim/test_clients.py",
    "cli/test_up.py",
    "cli/test_sim.py",
    "sim/test_run.py",
    "storage/test_durability.py",
    "cli/test_node.py",
    "cli/test_up_brokers.py",
)
"""Files that take longest are begun first: for what is begun last everybody waits."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    if PROFILE == "hunt":
        _make_harder(items)


def _make_harder(items: list[pytest.Item]) -> None:
    """In a hunt, also a test that says its own number of examples runs HUNT_FACTOR times as many."""
    done = set()  # the cases of one parametrized test share it
    for item in items:
        machine: Any = getattr(item, "cls", None)
        test: Any = getattr(item, "obj", None)
        test = getattr(test, "__func__", test)
        if hasattr(machine, "settings") and machine not in done:
            done.add(machine)
            machine.settings = _harder(machine.settings)
        elif hasattr(test, "hypothesis") and test not in done:
            done.add(test)
            chosen = getattr(test, "_hypothesis_internal_use_settings", None) or settings()
            test._hypothesis_internal_use_settings = _harder(chosen)


def _harder(chosen: settings) -> settings:
    return settings(chosen, max_examples=chosen.max_examples * HUNT_FACTOR)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What tests that passed have printed: seeds, figures. A hunt prints at once; its figures in one line.

    Of those that failed the first line, as a whole: pytest's own summary cuts it off at the width of a terminal.
    """
    for report in terminalreporter.stats.get("failed", []):
        message = getattr(getattr(report.longrepr, "reprcrash", None), "message", None) or str(report.longrepr)
        terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {message.strip().partition(chr(10))[0]}")
    if PROFILE != "hunt":
        for report in terminalreporter.stats.get("passed", []):
            for line in report.capstdout.splitlines() if report.when == "call" else ():
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {line}")
        return
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    told = [str(vars(report).get("_hypothesis_stats", "")) for report in reports]
    examples = sum(int(number) for text in told for number in re.findall(r"(\d+) (?:passing|failing)", text))
    failed = len(terminalreporter.stats.get("failed", []))
    terminalreporter.write_line(f"hunt: {sum(map(bool, told))} properties, {examples} examples, {failed} failures")
