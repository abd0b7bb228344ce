"""`python -m tidegate.pipeline`: handles signals before it imports anything large."""

from __future__ import annotations

import signal
import sys

from tidegate.pipeline.operations.shutdown import SIGNALS, STOPPING, CutOff, Stop, print_line


def main() -> int:
    """Run one verb and return its exit code, also if a signal comes before the verb is loaded."""
    stop = Stop()
    with stop.listening():
        try:
            with stop.cutting_off():
                signal.pthread_sigmask(
                    signal.SIG_UNBLOCK, SIGNALS
                )  # our starter blocks them until we listen
                from tidegate.pipeline.command import command

                return command()
        except CutOff as cut:
            print_line(STOPPING)
            return cut.exit_code


if __name__ == "__main__":
    code = main()
    for number in SIGNALS:  # all is done: ignore a late Ctrl-C
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)
