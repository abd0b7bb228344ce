"""How long hypothesis searches: TIDEGATE_HYPOTHESIS_PROFILE is `default` or `nightly`.

By default the same code is searched in the same way every time, so that a change fails for what
it did and not for an older bug that chance has found; the nightly search is where chance is.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

NIGHTLY = os.environ.get("TIDEGATE_HYPOTHESIS_PROFILE", "default") == "nightly"


def examples(default: int, *, nightly: int, steps: int | None = None) -> settings:
    """Settings for one test: how many examples, and of how many steps for a state machine."""
    return settings(
        max_examples=nightly if NIGHTLY else default,
        stateful_step_count=steps or 50,
        deadline=None,
        print_blob=True,
        derandomize=not NIGHTLY,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
