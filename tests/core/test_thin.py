"""What `headrace cluster why` says of a leader that has little on its own disk."""

from typing import Any

import pytest

from headrace.core.thin import _because

FIRST = "it is the first replica"
LITTLE = "its own disk covers 5 of 100 ms"


def replica(node_id: int, *, leads: bool = False, can_lead: bool = True, thin: bool = False) -> dict[str, Any]:
    return {"id": node_id, "leads": leads, "can_lead": can_lead, "thin": thin, "reason": LITTLE if thin else ""}


@pytest.mark.parametrize(
    ("is_thin", "others", "because"),
    [
        (False, [replica(2, can_lead=False)], FIRST),
        (False, [replica(2)], FIRST),
        (
            True,
            [replica(2, can_lead=False), replica(3, can_lead=False, thin=True)],
            f"no other replica can lead; {LITTLE}",
        ),
        (True, [], f"no other replica can lead; {LITTLE}"),
        (
            True,
            [replica(2, thin=True)],
            "all that can lead have little on their own disks, and it is the first replica",
        ),
        (True, [replica(2)], FIRST),
    ],
)
def test_a_thin_first_replica_leads_for_want_of_others(
    is_thin: bool, others: list[dict[str, Any]], because: str
) -> None:
    assert _because(1, [replica(1, leads=True, thin=is_thin), *others]) == because
