"""`python -m bench.servers.sampled FILE serve …`: a gateway that notes what its CPU time goes to.

SIGUSR1 begins, SIGUSR2 ends, and writes `FILE`: a line for each function, its samples first. The
time of a system call, or of a function in C, is that of the function in Python that calls it.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from tidegate.app.cli.main import main

EVERY_S = 0.001  # of CPU time; a kernel may round it up to its own tick
ROOT = Path(__file__).parents[2]


def sample(path: Path) -> None:
    """Install the signals."""
    functions: Counter[str] = Counter()

    def note(number: int, frame: FrameType | None) -> None:
        if frame is not None:
            functions[_name(frame)] += 1

    def begin(number: int, frame: FrameType | None) -> None:
        functions.clear()
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)

    def end(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = [f"{count} {name}" for name, count in functions.most_common()]
        # Renamed when complete: the benchmark reads the file as soon as it exists.
        unfinished = path.with_suffix(".part")
        unfinished.write_text("\n".join(lines))
        unfinished.rename(path)

    signal.signal(signal.SIGPROF, note)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)


def _name(frame: FrameType) -> str:
    """Return module and function, without the folder of an installation."""
    path = Path(frame.f_code.co_filename)
    name = f"{'/'.join(path.parts[-2:])} {frame.f_code.co_qualname}"
    if path.is_relative_to(ROOT / "tidegate"):
        name = f"{path.relative_to(ROOT / 'tidegate')} {frame.f_code.co_qualname}"
    return name


if __name__ == "__main__":
    sample(Path(sys.argv[1]))
    sys.argv[:2] = ["tidegate"]
    sys.exit(main())
