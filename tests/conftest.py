"""How hard property tests search.

`make test` runs the "default" profile: the same examples every time, so that a failure is this change's. `make hunt`
runs "hunt": new random examples in every run, many of them, and the tests of tests/hunt besides. What a hunt finds
becomes an @example or a test of its own.

A property test that needs fewer examples than the profile has, because each is dear, says
`@settings(max_examples=settings().max_examples // 10)`, so that a hunt still searches harder.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "hunt",
    deadline=None,
    max_examples=int(os.environ.get("HUNT_EXAMPLES", "5000")),
    stateful_step_count=200,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.load_profile(PROFILE)

collect_ignore = [] if PROFILE == "hunt" else ["hunt"]
