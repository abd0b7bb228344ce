"""Verbs that are promised and not there yet: each says so."""

from __future__ import annotations

import argparse

from app.cli.arguments import Parser
from app.cli.errors import UsageInvalid

VERBS = {
    "top": "a live view of topics and sessions",
    "bench": "the benchmark suite",
}


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verbs; whatever arguments follow are passed over."""
    for name, does in VERBS.items():
        add_refused(verbs, name, f"{does} (not available yet)", name)


def add_refused(
    verbs: argparse._SubParsersAction[Parser], name: str, does: str, refused: str
) -> None:
    """Add one verb that takes anything and refuses it."""
    # No argument is an option here, so that none is complained of before the verb itself is.
    parser = verbs.add_parser(name, help=does, add_help=False, prefix_chars="\0")
    parser.add_argument("rest", nargs="*")
    parser.set_defaults(run=refuse, refused=refused)


def refuse(arguments: argparse.Namespace) -> int:
    """Say that the verb is not there.

    Raises:
        UsageInvalid: always.
    """
    raise UsageInvalid(f"{arguments.refused} is not available yet")
