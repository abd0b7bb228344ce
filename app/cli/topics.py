"""`tidegate topics list, show, create, delete`: what there is, and its administration."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.arguments import Parser, add_gateway, add_topic, count
from app.cli.connection import gateway_at
from app.cli.errors import DONE, UsageInvalid
from app.cli.later import add_refused
from app.cli.terminal import tell

if TYPE_CHECKING:
    from clients.gateway import Gateway

FIGURES = ("messages_in", "keys", "subscriptions", "lanes")


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb and its own verbs."""
    parser = verbs.add_parser("topics", help="list, show, create, delete", allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", metavar="VERB", required=True)
    listing = actions.add_parser("list", help="every topic", allow_abbrev=False)
    listing.add_argument("--prefix", default="", help="only names that begin so")
    add_gateway(listing)
    listing.set_defaults(run=run_list)
    _add(actions, "show", "a topic's definition and live figures").set_defaults(run=run_show)
    _add(actions, "delete", "delete a topic and what it holds").set_defaults(run=run_delete)
    _add_create(actions)
    add_refused(actions, "update", "change a definition (not available yet)", "topics update")


def _add(actions: argparse._SubParsersAction[Parser], name: str, does: str) -> Parser:
    parser: Parser = actions.add_parser(name, help=does, allow_abbrev=False)
    add_topic(parser)
    add_gateway(parser)
    return parser


def _add_create(actions: argparse._SubParsersAction[Parser]) -> None:
    parser = _add(actions, "create", "create a topic, or replace its definition")
    parser.add_argument("--key", metavar="PATHS", help="SOW key, such as /symbol,/venue")
    parser.add_argument("--type", help="json (the default)")
    parser.add_argument("--conflation", metavar="POLICY", help="off or conflate (the default)")
    parser.add_argument("--history", metavar="N", type=count, help="messages the journal keeps")
    parser.add_argument("--description", metavar="TEXT")
    parser.add_argument(
        "--definition", metavar="FILE", help="the definition as JSON; flags win over it"
    )
    parser.set_defaults(run=run_create)


def run_list(arguments: argparse.Namespace) -> int:
    """A table on a terminal, else NDJSON."""
    with gateway_at(arguments) as gateway:
        if not sys.stdout.isatty():
            for topic in gateway.topics(arguments.prefix):
                tell(json.dumps(topic, ensure_ascii=False, separators=(",", ":")))
            return DONE
        _print_table(gateway, arguments.prefix)
    return DONE


def run_show(arguments: argparse.Namespace) -> int:
    """The definition and figures as JSON."""
    with gateway_at(arguments) as gateway:
        tell(json.dumps(gateway.topic(arguments.topic), ensure_ascii=False, indent=2))
    return DONE


def run_create(arguments: argparse.Namespace) -> int:
    """Create or replace."""
    definition = definition_of(arguments)
    with gateway_at(arguments) as gateway:
        created = gateway.put_topic(arguments.topic, definition)
    tell(f"{'Created' if created else 'Replaced'} topic {arguments.topic}")
    return DONE


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete."""
    with gateway_at(arguments) as gateway:
        gateway.delete_topic(arguments.topic)
    tell(f"Deleted topic {arguments.topic}")
    return DONE


def definition_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The definition that file and flags describe together.

    Raises:
        UsageInvalid: the file cannot be read, or is no JSON object.
    """
    definition = {} if arguments.definition is None else _read_object(arguments.definition)
    if arguments.key is not None:
        definition["key"] = [path.strip() for path in arguments.key.split(",") if path.strip()]
    if arguments.history is not None:
        definition["history"] = {"messages": arguments.history}
    for name in ("type", "conflation", "description"):
        if getattr(arguments, name) is not None:
            definition[name] = getattr(arguments, name)
    return definition


def _read_object(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
        found = json.loads(text)
    except OSError as error:
        raise UsageInvalid(f"cannot read {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageInvalid(f"{file} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageInvalid(f"{file} is not a JSON object")
    return found


def _print_table(gateway: Gateway, prefix: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("topic", "key", *(name.replace("_", " ") for name in FIGURES), "source")
    for column in table.columns[2:-1]:
        column.justify = "right"
    for topic in gateway.topics(prefix):
        source = topic.get("source")
        filled = f"{source['topic']} every {source['interval']}" if source else ""
        figures = [f"{topic.get(name) or 0:,}" for name in FIGURES]
        table.add_row(topic["topic"], ", ".join(topic["key"]), *figures, filled)
    Console().print(table)
