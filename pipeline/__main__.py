"""`python -m tidegate.pipeline`: nothing of weight is imported before a signal can be heeded."""

from __future__ import annotations

import signal
import sys

from tidegate.pipeline.operations.shutdown import SIGNALS, STOPPING, CutOff, Stop, say


def main() -> int:
    """Run one verb; the answer is its exit code, also where a signal comes before it is loaded."""
    stop = Stop()
    with stop.listening():
        try:
            with stop.cutting_off():
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # held back by whoever began us
                from tidegate.pipeline.command import command

                return command()
        except CutOff as cut:
            say(STOPPING)
            return cut.exit_code


if __name__ == "__main__":
    code = main()
    for number in SIGNALS:  # all is done: another Ctrl-C has nothing to interrupt
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)
