"""Start `tidegate`: nothing slow is imported before an interrupt can be caught."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidegate.app.cli.terminal import INTERRUPTED


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 done, 1 the gateway refused, 2 wrong usage, 3 the gateway cannot be reached, 78 bad
    configuration, 130 interrupted, also while the command is still loading.
    """
    try:
        from tidegate.app.cli.command import run

        return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
