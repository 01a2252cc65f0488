"""Faults take no more than the promise covers."""

from headrace.sim.run import run_seed
from tests.sim.planted import TIERED

WIPED_AND_POWERLESS = 9000185
"""One member of an ISR of two is wiped, and the power of the other is about to go, with everything on its disk."""


def test_a_machine_is_spared_where_a_wiped_member_would_be_as_good_as_it() -> None:
    """Neither is intact then, and the wiped one may come back first, and lead."""
    verdict = run_seed(WIPED_AND_POWERLESS, TIERED)
    assert verdict.violations == []
    assert any("is spared" in line for line in verdict.story)
