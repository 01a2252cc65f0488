"""Who drives a checkpoint, against a broker in this process."""

import pytest

from headrace import own
from headrace.pipeline.guard import Guard
from headrace.spark.driver_claims import OWN_GROUP
from headrace.spark.scope import scope_of
from headrace.testing import Cluster


def test_a_query_that_is_started_again_keeps_what_its_driver_has_claimed() -> None:
    """Given up and claimed anew it would be free for a moment, and an older driver could have it back."""
    scope = scope_of(None, "/tables/orders/_headrace/checkpoint", "orders")
    with Cluster() as cluster:
        guard = Guard(cluster.bootstrap, scope, 1)
        try:
            guard.check("q", "run-1", 0)
            guard.check("q", "run-2", 0)
            with (
                pytest.raises(own.AlreadyOwned) as refused,
                own.claim_sync(cluster.bootstrap, OWN_GROUP, f"query/{scope.name}/q"),
            ):
                pass
        finally:
            guard.close()
    assert refused.value.generation == 1
