"""`headrace sim`: clusters on virtual time, one per seed, in search of a broken promise."""

import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headrace.cli import output
from headrace.cli.options import Json
from headrace.cli.outcome import UsageError
from headrace.cli.progress import Bar

if TYPE_CHECKING:
    from headrace.sim.run import Scenario, Verdict

SEED_BITS = 31


def sim(
    *,
    seed: Annotated[int | None, Parameter(help="The first seed; drawn when it is not given.")] = None,
    seeds: Annotated[int | None, Parameter(help="How many, one after another.")] = None,
    minutes: Annotated[float | None, Parameter(help="As many as can be done in so many minutes.")] = None,
    brokers: Annotated[int, Parameter(help="Nodes in each cluster.")] = 3,
    transactors: Annotated[int, Parameter(help="Clients of each cluster that write in transactions.")] = 0,
    drivers: Annotated[int, Parameter(help="Drivers of one Spark query in each cluster.")] = 0,
    owners: Annotated[int, Parameter(help="Clients of each cluster that own partitions in turn (`own`).")] = 0,
    members: Annotated[int, Parameter(help="Clients of each cluster that are one consumer group.")] = 0,
    clerks: Annotated[int, Parameter(help="Clients of each cluster that administer it, with mistakes.")] = 0,
    tier: Annotated[
        bool, Parameter(help="With tiered topics, an object store that fails, and nodes that are wiped.")
    ] = False,
    json: Json = False,
) -> int:
    if min(transactors, drivers, owners, members, clerks) < 0:
        raise UsageError("--transactors, --drivers, --owners, --members and --clerks take no negative numbers")
    if (seeds is not None and seeds < 1) or (minutes is not None and not 0 < minutes < inf) or brokers < 1:
        raise UsageError("--seeds, --minutes and --brokers take numbers above zero")
    from headrace.sim.run import Scenario, shorten

    scenario = Scenario(
        brokers=brokers,
        transactors=transactors,
        drivers=drivers,
        owners=owners,
        members=members,
        clerks=clerks,
        tier=tier,
    )
    first = secrets.randbits(SEED_BITS) if seed is None else seed
    total = seeds if seeds is not None or minutes is not None else 1
    done, begun = 0, time.monotonic()
    with _quiet(), Bar("seeds", total, wanted=not json) as bar:
        for verdict in _verdicts(first, total, minutes, scenario):
            done += 1
            bar.show(done)
            if verdict.violations:
                break
    seconds = time.monotonic() - begun
    if not verdict.violations:
        _say_good(verdict, first, done, seconds, json)
        return 0
    with _quiet():
        short = shorten(verdict, scenario)
    _say_bad(verdict, short, scenario, json)
    return 1


@contextmanager
def _quiet() -> Iterator[None]:
    """Nodes that are killed all the time have much to log; the story has what matters."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _verdicts(first: int, total: int | None, minutes: float | None, scenario: "Scenario") -> "Iterator[Verdict]":
    from headrace.sim.run import run_seed

    end = None if minutes is None else time.monotonic() + minutes * 60
    seed = first
    while True:
        yield run_seed(seed, scenario)
        seed += 1
        if (total is not None and seed - first >= total) or (end is not None and time.monotonic() >= end):
            return


def _say_good(verdict: "Verdict", first: int, done: int, seconds: float, as_json: bool) -> None:
    rate = done / seconds
    if as_json:
        output.document({"first_seed": first, "seeds": done, "seconds": round(seconds, 3), "failed": None})
    elif done == 1:
        faults, acked, digest = len(verdict.plan), verdict.acked, verdict.digest
        output.line(f"Seed {first}: {faults} faults, {acked} acknowledged records, every promise kept ({digest:08x}).")
    else:
        output.line(f"{done} seeds from {first}, {rate:.1f} per second: every promise kept.")


def _say_bad(failed: "Verdict", short: "Verdict", scenario: "Scenario", as_json: bool) -> None:
    command = f"headrace sim --seed {failed.seed} --brokers {scenario.brokers}"
    if scenario.transactors:
        command += f" --transactors {scenario.transactors}"
    if scenario.drivers:
        command += f" --drivers {scenario.drivers}"
    if scenario.owners:
        command += f" --owners {scenario.owners}"
    if scenario.members:
        command += f" --members {scenario.members}"
    if scenario.clerks:
        command += f" --clerks {scenario.clerks}"
    if scenario.tier:
        command += " --tier"
    if as_json:
        output.document(
            {
                "failed": failed.seed,
                "violations": [str(violation) for violation in failed.violations],
                "story": short.story,
                "command": command,
            }
        )
        return
    output.line(f"Seed {failed.seed} breaks a promise. With {len(short.plan)} of its {len(failed.plan)} faults:\n")
    for told in short.story:
        output.line(told)
    output.line("")
    for violation in short.violations[:5]:
        output.line(str(violation))
    if len(short.violations) > 5:
        output.line(f"... and {len(short.violations) - 5} more")
    output.line(f"\nTo play it again: {command}")
