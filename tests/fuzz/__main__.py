"""`python -m tests.fuzz`: fuzz the readers of whatever clients send.

    python -m tests.fuzz [--seconds N] [--target NAME]... [--seed N] [--executions N]

Each target gets N seconds of CPU (10 by default), one after the other; with `--executions` they
take turns of N seconds until there were so many in all. One process, one core; it ends by itself.
Exit 1 if anything was found: each finding is printed with its input.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from importlib import import_module

from tests.fuzz.target import Outcome, Target, run

MODULES = ("languages", "documents", "tokens", "http", "streams")


def targets() -> list[Target]:
    """All targets, in the order of the modules."""
    return [one for name in MODULES for one in import_module(f"tests.fuzz.{name}").TARGETS]


def main(words: list[str]) -> int:
    """Fuzz what the words ask for; print executions and findings by target."""
    known = {target.name: target for target in targets()}
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=10.0, help="of CPU for each target")
    parser.add_argument("--target", action="append", choices=list(known), help="only this one")
    parser.add_argument("--seed", type=int, help="of all inputs; a random one by default")
    parser.add_argument("--executions", type=int, default=0, help="go on until there were so many")
    asked = parser.parse_args(words)
    seed = random.randrange(1 << 32) if asked.seed is None else asked.seed
    chosen = [known[name] for name in asked.target or known]
    logging.disable()  # the protocol says of each refusal why
    sums = {target.name: Outcome(target.name) for target in chosen}
    began, rounds = time.monotonic(), 0
    while rounds == 0 or sum(it.executions for it in sums.values()) < asked.executions:
        for target in chosen:
            _add(sums[target.name], run(target, seed + rounds, seconds=asked.seconds))
        rounds += 1
    minutes = (time.monotonic() - began) / 60
    print(f"seed {seed}, {rounds} rounds of {asked.seconds:g} s a target, {minutes:.1f} min")
    for each in sums.values():
        print(f"{each.target:12} {each.executions:>12,} {each.accepted:>12,} accepted"
              f" {len(each.findings):>4} findings")  # fmt: skip
    print(f"{'all':12} {sum(it.executions for it in sums.values()):>12,}")
    return 1 if any(it.findings for it in sums.values()) else 0


def _add(total: Outcome, one: Outcome) -> None:
    total.executions += one.executions
    total.accepted += one.accepted
    total.findings += one.findings
    # At once: a long run may be ended before its sums are printed.
    print(f"{one.target:12} {one.executions:>12,}", flush=True)
    for finding in one.findings:
        print(finding, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
