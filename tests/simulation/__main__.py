"""Replays seeds: `python -m tests.simulation SEED [HOW_MANY]`; stops at the first that fails.

Exit code 0: nothing found. 3: a broken invariant, told with its seed.
"""

from __future__ import annotations

import argparse
import logging
import sys

from tests.simulation.search import FOUND, search


def main() -> int:
    """From one seed on."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("how_many", type=int, nargs="?", default=1)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    found = search(range(given.seed, given.seed + given.how_many))
    sys.stdout.write(f"{found}\n")
    return FOUND if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
