"""What goes on in rounds outlives a bug in one of them, and a simulated run that met one has failed."""

from unittest.mock import patch

import pytest

from tests.broker.test_tier_given_up import SETTINGS, TIERED, fill
from tests.broker.trio import Trio, play


@pytest.mark.parametrize(
    "where",
    [
        "tier_work.Copier.copy",
        "tier_work.TierTopics.look",
        "tier.Tier._load_once",
        "coverage_reports.CoverageReports.look",
        "housekeeping.Housekeeping.enforce_retention",
    ],
)
def test_a_bug_is_told_and_the_next_round_comes(where: str) -> None:
    met = 0

    async def fails(*_: object) -> None:
        nonlocal met
        met += 1
        raise ZeroDivisionError("planted")

    async def scenario(trio: Trio) -> None:
        await trio.topic([1], settings=TIERED)
        await fill(trio, 1, 5)
        failures = trio.world.loop.failures
        await trio.until(lambda: met > 2 and len(failures) > 2)
        assert all("planted" in failure for failure in failures)
        failures.clear()  # else the run has failed

    with patch(f"headrace.broker.{where}", fails):
        play(scenario, SETTINGS, nodes=1)
