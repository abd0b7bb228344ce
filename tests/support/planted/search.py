"""Search with one state machine alone, in the code that stands first on the path.

Exit code 0: nothing found. 3: an assertion failed, which is printed in one line. Anything else: the
search did not run, or the code under test does not work at all, which finds no planted bug.
"""

from __future__ import annotations

import importlib
import sys

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

import tidegate

FOUND = 3


def main(copy: str, machine: str, examples: int, drawn_from: int | None = None) -> int:
    """The same examples every time; the first that fails is enough.

    `machine`: `module:class`. `drawn_from`: a seed of other examples than the usual ones.
    """
    assert str(tidegate.__file__).startswith(copy), "not the copy"
    module, _, name = machine.partition(":")
    chosen = settings(
        max_examples=examples,
        stateful_step_count=30,
        phases=[Phase.generate],
        derandomize=drawn_from is None,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    found = getattr(importlib.import_module(f"tests.conflation.{module}"), name)
    if drawn_from is not None:
        seed(drawn_from)(found)
    try:
        run_state_machine_as_test(found, settings=chosen)
    except AssertionError as broken:
        print(f"{type(broken).__name__}: {broken}".partition("\n")[0])  # noqa: T201 - its one output
        return FOUND
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
