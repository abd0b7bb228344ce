"""Lines of a command: what it tells goes out, why it ends goes beside."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """To standard output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    """To standard error, as the command's own."""
    sys.stderr.write(f"tidegate: {line}\n")
    sys.stderr.flush()
