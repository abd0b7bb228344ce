"""`tidegate topics list, show, create, update, delete`: what there is, and its administration."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from app.cli.arguments import Parser, add_gateway, add_topic
from app.cli.connection import gateway_at
from app.cli.definition import add_fields, definition_of, entity_tag
from app.cli.errors import DONE, UsageInvalid
from app.cli.rows import Column, tell_list, tell_one
from app.cli.terminal import tell


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb and its own verbs."""
    parser = verbs.add_parser(
        "topics", help="list, show, create, update, delete", allow_abbrev=False
    )
    actions = parser.add_subparsers(dest="action", metavar="VERB", required=True)
    listing = actions.add_parser("list", help="every topic", allow_abbrev=False)
    listing.add_argument("--prefix", default="", help="only names that begin so")
    add_gateway(listing)
    listing.set_defaults(run=run_list)
    _add(actions, "show", "a topic's definition and live figures").set_defaults(run=run_show)
    create = _add(actions, "create", "create a topic, or replace its definition")
    add_fields(create)
    create.add_argument("--new", action="store_true", help="refuse a topic that is there")
    _add_if_match(create, run_create)
    update = _add(actions, "update", "change parts of a definition (JSON Merge Patch)")
    add_fields(update)
    _add_if_match(update, run_update)
    _add_if_match(_add(actions, "delete", "delete a topic and what it holds"), run_delete)


def _add(actions: argparse._SubParsersAction[Parser], name: str, does: str) -> Parser:
    parser: Parser = actions.add_parser(name, help=does, allow_abbrev=False)
    add_topic(parser)
    add_gateway(parser)
    return parser


def _add_if_match(parser: Parser, run: Any) -> None:
    parser.add_argument(
        "--if-match",
        metavar="ETAG",
        type=entity_tag,
        help="only while the topic's ETag, as show tells it, is this one",
    )
    parser.set_defaults(run=run)


def run_list(arguments: argparse.Namespace) -> int:
    """A table on a terminal, else NDJSON."""
    with gateway_at(arguments) as gateway:
        tell_list(gateway.topics(arguments.prefix), COLUMNS)
    return DONE


def run_show(arguments: argparse.Namespace) -> int:
    """The definition, its ETag and the figures."""
    with gateway_at(arguments) as gateway:
        found = gateway.administration.topic(arguments.topic)
    tell_one(found.document | {"etag": found.etag})
    return DONE


def run_create(arguments: argparse.Namespace) -> int:
    """Create or replace."""
    definition = definition_of(arguments)
    with gateway_at(arguments) as gateway:
        found = gateway.administration.put_topic(
            arguments.topic,
            definition,
            if_match=arguments.if_match,
            only_new=arguments.new,
        )
    tell(f"{'Created' if found.is_new else 'Replaced'} topic {arguments.topic}, ETag {found.etag}")
    return DONE


def run_update(arguments: argparse.Namespace) -> int:
    """Change what is named; null restores a default.

    Raises:
        UsageInvalid: nothing is named.
    """
    patch = definition_of(arguments)
    if not patch:
        raise UsageInvalid("nothing to change: say what with --set, --from or a field's own flag")
    with gateway_at(arguments) as gateway:
        found = gateway.administration.patch_topic(
            arguments.topic, patch, if_match=arguments.if_match
        )
    tell(f"Updated topic {arguments.topic}, ETag {found.etag}")
    return DONE


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete."""
    with gateway_at(arguments) as gateway:
        gateway.administration.delete_topic(arguments.topic, if_match=arguments.if_match)
    tell(f"Deleted topic {arguments.topic}")
    return DONE


def _source(topic: Mapping[str, Any]) -> str:
    source = topic.get("source")
    return f"{source['topic']} every {source['interval']}" if source else ""


COLUMNS: Mapping[str, Column] = {
    "topic": lambda topic: topic["topic"],
    "key": lambda topic: topic["key"],
    "messages in": lambda topic: topic["messages_in"],
    "keys": lambda topic: topic["keys"],
    "bytes": lambda topic: topic["bytes"],
    "subscriptions": lambda topic: topic["subscriptions"],
    "lanes": lambda topic: topic["lanes"],
    "conflated": lambda topic: f"{topic['conflation_ratio']:.0%}",
    "source": _source,
}
