"""`python -m pipeline run FILE.toml`: the pipeline without the rest of the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipeline.run import DEFAULT_MASTER, run


def main() -> int:
    """Parse the arguments and run; the exit codes are the command line's."""
    parser = argparse.ArgumentParser(prog="python -m pipeline")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run the streams of a definition file")
    running.add_argument("file", type=Path, metavar="FILE.toml")
    running.add_argument("--master", default=DEFAULT_MASTER, help="Spark master (%(default)s)")
    running.add_argument("--available-now", action="store_true", help="end when all is read")
    given = parser.parse_args()
    return run(given.file, master=given.master, available_now=given.available_now)


if __name__ == "__main__":
    sys.exit(main())
