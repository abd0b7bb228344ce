"""Campaigns of faults against three gateways on one Redis, from the command line."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys

from tests.campaign.campaign import Campaign, Result
from tests.campaign.report import story, table
from tests.faults.setups.gateway import CannotRun

PACE_S = 5.0


def main(words: list[str]) -> int:
    """Run what is asked for; return 1 if anything was found wrong."""
    given = _arguments(words)
    # As for Ctrl-C: the processes and folders of a campaign are gone when it ends.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = secrets.randbelow(1 << 31) if given.seed is None else given.seed
    results: list[Result] = []
    try:
        for each in range(seed, seed + given.seeds):
            print(f"seed {each}, {given.seconds:g} s, appendfsync {given.fsync}", flush=True)
            campaign = Campaign(each, given.seconds, given.fsync, pace_s=given.pace, tell=_tell)
            results.append(campaign.result)
            asyncio.run(campaign.run())
            for line in story(results[-1]):
                print(line, flush=True)
    except CannotRun as reason:
        print(f"not run: {reason}")
        return 1
    except KeyboardInterrupt:
        print("ended early")
    print(table(results))
    return 1 if any(result.findings for result in results) else 0


def _tell(line: str) -> None:
    print(f"  {line}", flush=True)


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the first campaign (a fresh one)")
    parser.add_argument("--seeds", type=int, default=1, help="so many campaigns (1)")
    parser.add_argument("--seconds", type=float, default=120, help="of faults in each (120)")
    parser.add_argument("--fsync", choices=("everysec", "always"), default="everysec")
    parser.add_argument(
        "--pace", type=float, default=PACE_S, help="mean seconds between faults of a lane (5)"
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
