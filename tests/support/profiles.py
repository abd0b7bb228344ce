"""How long and from which seed tests search.

By default the same code is searched in the same way each time, so that a change fails for what it
did and not for an older fault. `dev.py test --nightly` sets TIDEGATE_HYPOTHESIS_PROFILE=nightly, so
that searches are longer, and TIDEGATE_TEST_SEED, a fresh seed that it prints.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SEED = int(os.environ.get("TIDEGATE_TEST_SEED", "0"))
"""The seed of every search that is not hypothesis's own."""
NIGHTLY = os.environ.get("TIDEGATE_HYPOTHESIS_PROFILE", "default") == "nightly"


SEARCHED_FOR_EACH = 20
"""How many examples the nightly run draws for each one of the default tier; seeds add up."""


def examples(count: int, *, steps: int | None = None) -> settings:
    """Settings for one test: how many examples, and of how many steps for a state machine."""
    return settings(
        max_examples=count * SEARCHED_FOR_EACH if NIGHTLY else count,
        stateful_step_count=steps or 50,
        deadline=None,
        print_blob=True,
        derandomize=not NIGHTLY,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
