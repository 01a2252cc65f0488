"""How much of a node's code the simulator alone runs."""

import subprocess
import sys

import pytest

pytest.importorskip("coverage", reason="needs the package coverage")

PERCENT_MIN = 80.0
SEEDS = 4

# In a process of its own, in which nothing of Headrace is imported before the counting begins.
COUNT = """
import logging, sys
from coverage import Coverage
PARTS = ("broker", "controller", "core", "net/connection.py")
places = [f"*/headrace/{part}" if part.endswith(".py") else f"*/headrace/{part}/*" for part in PARTS]
coverage = Coverage(include=places, data_file=None)
coverage.start()
logging.disable(logging.CRITICAL)
from headrace.sim.run import Scenario, run_seed
for seed in range(int(sys.argv[1])):
    run_seed(seed, Scenario(transactors=2, drivers=2, owners=3, members=3, clerks=2, tier=True))
coverage.stop()
lines = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0)
for path in coverage.get_data().measured_files():
    part = next(part for part in PARTS if f"/headrace/{part}" in path)
    _, statements, _, missing, _ = coverage.analysis2(path)
    lines[0][part] += len(statements) - len(missing)
    lines[1][part] += len(statements)
for part in PARTS:
    print(part, lines[0][part], lines[1][part])
"""


@pytest.mark.timeout(1200)  # coverage makes it slow, and the machine may be busy
def test_the_simulator_alone_runs_most_lines_of_a_node() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT, str(SEEDS)], capture_output=True, text=True, check=True)
    parts = {part: int(run) / int(total) * 100 for part, run, total in map(str.split, done.stdout.splitlines())}
    for part, percent in parts.items():
        print(f"{part}: {percent:.1f} % in {SEEDS} seeds")
    assert min(parts.values()) >= PERCENT_MIN
