"""Start `tidegate`: nothing of weight is imported before an interrupt can be heeded."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidegate.app.cli.terminal import INTERRUPTED


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the answer is its exit code.

    0 done, 1 the gateway said no, 2 wrong usage, 3 cannot reach the gateway, 78 bad
    configuration, 130 interrupted, be it while the command is still being loaded.
    """
    try:
        from tidegate.app.cli.command import run

        return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
