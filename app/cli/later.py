"""Verbs that are promised and not there yet: each says so."""

from __future__ import annotations

import argparse

from app.cli.arguments import Parser
from app.cli.errors import UsageInvalid

VERBS = {
    "sessions": "list, show, close and conflate sessions",
    "explain": "what subscribing would do, without doing it",
    "top": "a live view of topics and sessions",
    "restore": "restore a backup",
    "bench": "the benchmark suite",
}


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verbs; whatever arguments follow are passed over."""
    for name, does in VERBS.items():
        parser = verbs.add_parser(name, help=f"{does} (not available yet)", add_help=False)
        parser.add_argument("rest", nargs=argparse.REMAINDER)
        parser.set_defaults(run=refuse, refused=name)


def refuse(arguments: argparse.Namespace) -> int:
    """Say that the verb is not there.

    Raises:
        UsageInvalid: always.
    """
    raise UsageInvalid(f"{arguments.refused} is not available yet")
