"""`tidegate sessions list, show, close, conflate`: who listens, and what waits for them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from app.cli.arguments import Parser, add_gateway
from app.cli.connection import gateway_at
from app.cli.errors import DONE
from app.cli.rows import Column, moment, tell_list, tell_one
from app.cli.terminal import tell

SWITCHED = {"on": True, "off": False}


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb and its own verbs."""
    parser = verbs.add_parser("sessions", help="list, show, close, conflate", allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", metavar="VERB", required=True)
    listing = actions.add_parser("list", help="sessions that have not ended", allow_abbrev=False)
    add_gateway(listing)
    listing.set_defaults(run=run_list)
    _add(actions, "show", "a session and its subscriptions").set_defaults(run=run_show)
    _add(actions, "close", "say goodbye to a session").set_defaults(run=run_close)
    conflate = _add(actions, "conflate", "whether its topics' queue policies hold for a session")
    conflate.add_argument("switched", metavar="on|off", choices=tuple(SWITCHED))
    conflate.set_defaults(run=run_conflate)


def _add(actions: argparse._SubParsersAction[Parser], name: str, does: str) -> Parser:
    parser: Parser = actions.add_parser(name, help=does, allow_abbrev=False)
    parser.add_argument("session", metavar="SESSION", help="id of the session")
    add_gateway(parser)
    return parser


def run_list(arguments: argparse.Namespace) -> int:
    """A table on a terminal, else NDJSON."""
    with gateway_at(arguments) as gateway:
        tell_list(gateway.administration.sessions(), COLUMNS)
    return DONE


def run_show(arguments: argparse.Namespace) -> int:
    """Where a session stands, what waits for it, and what its subscriptions came to."""
    with gateway_at(arguments) as gateway:
        tell_one(gateway.administration.session(arguments.session))
    return DONE


def run_close(arguments: argparse.Namespace) -> int:
    """Close; the reader is told CLOSED_BY_ADMIN."""
    with gateway_at(arguments) as gateway:
        gateway.administration.close_session(arguments.session)
    tell(f"Closed session {arguments.session}")
    return DONE


def run_conflate(arguments: argparse.Namespace) -> int:
    """Switch every queue policy off for a session, or on again."""
    conflated = SWITCHED[arguments.switched]
    with gateway_at(arguments) as gateway:
        gateway.administration.tune_session(arguments.session, conflated=conflated)
    tell(f"Session {arguments.session} is {'' if conflated else 'not '}conflated")
    return DONE


COLUMNS: Mapping[str, Column] = {
    "session": lambda session: session["session"],
    "state": lambda session: session["state"],
    "opened": lambda session: moment(session["opened_ms"]),
    "subscriptions": lambda session: session["subscriptions"],
    "queued": lambda session: session["queue"]["messages"],
    "queued bytes": lambda session: session["queue"]["bytes"],
    "unsent bytes": lambda session: session["unsent_bytes"],
    "conflated": lambda session: session["conflated"],
}
