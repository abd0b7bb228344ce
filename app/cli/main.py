"""Start `tidegate`: nothing slow is imported before an interrupt can be caught."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from tidegate.app.cli.terminal import INTERRUPTED, TERMINATED, open_closed_streams


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 done, 1 the gateway refused, 2 wrong usage, 3 the gateway cannot be reached, 78 bad
    configuration, 130 interrupted, also while the command is still loading, 143 terminated as the
    first process of a container.
    """
    # The kernel discards signals for which process 1 has no handler, see pid_namespaces(7). What
    # has a better answer to SIGTERM, such as the server, replaces this one.
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _terminate)
    open_closed_streams()
    try:
        from tidegate.app.cli.command import run

        return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return INTERRUPTED


def _terminate(number: int, frame: FrameType | None) -> None:
    os._exit(TERMINATED)  # at once, as SIGTERM ends any other process that does not handle it


if __name__ == "__main__":
    sys.exit(main())
