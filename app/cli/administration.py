"""`tidegate topics` and `sessions`: list, show, change, end."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from tidegate.app.cli.arguments import (
    COUNT,
    connect,
    gateway_option,
    key_option,
    paths_of,
    topic_argument,
)
from tidegate.app.cli.printing import Column, moment, print_document, print_list
from tidegate.app.cli.terminal import (
    DONE,
    PROGRAM,
    CommandError,
    UsageInvalid,
    print_line,
    standard_input,
)


def _source(topic: Mapping[str, Any]) -> str:
    source = topic.get("source")
    if not isinstance(source, Mapping):  # that of an unusable topic may be anything
        return ""
    return f"{source.get('topic', '?')} every {source.get('interval', '?')}"


def _conflated(topic: Mapping[str, Any]) -> str:
    ratio = topic.get("conflation_ratio")
    return "" if ratio is None else f"{ratio:.0%}"


def _fault(topic: Mapping[str, Any]) -> str:
    # Empty for a topic without a fault, so that faults stand out.
    reason = topic.get("reason")
    return f"{topic['state']}: {reason}" if reason else ""


# `get` for all but the name: an unusable topic has neither figures nor, perhaps, a key.
TOPIC_COLUMNS: Mapping[str, Column] = {
    "topic": lambda topic: topic["topic"],
    "key": lambda topic: topic.get("key", ""),
    "messages in": lambda topic: topic.get("messages_in", ""),
    "keys": lambda topic: topic.get("keys", ""),
    "bytes": lambda topic: topic.get("bytes", ""),
    "subscriptions": lambda topic: topic.get("subscriptions", ""),
    "lanes": lambda topic: topic.get("lanes", ""),
    "conflated": _conflated,
    "source": _source,
    "fault": _fault,
}
SESSION_COLUMNS: Mapping[str, Column] = {
    "session": lambda session: session["session"],
    "state": lambda session: session["state"],
    "opened": lambda session: moment(session["opened_ms"]),
    "subscriptions": lambda session: session["subscriptions"],
    "topics": lambda session: ", ".join(session["topics"]),
    "queued": lambda session: session["queue"]["messages"],
    "queued bytes": lambda session: session["queue"]["bytes"],
    "unsent bytes": lambda session: session["unsent_bytes"],
    "conflated": lambda session: session["conflated"],
}


def _assignments(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, object]:
    """Parse `field=value` pairs; a value that is not JSON is taken as text."""
    fields: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"expected FIELD=VALUE, not {text!r}.")
        try:
            # JSON first, so that numbers and null need no quotes.
            fields[name.strip()] = msgspec.json.decode(value)
        except ValueError:
            fields[name.strip()] = value
    return fields


def entity_tag(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Return an ETag as the gateway shows it; put back the quotes that a shell took away."""
    if text is None:
        return None
    if not text or not all("!" <= character <= "~" for character in text):
        raise click.BadParameter(f"expected an ETag as `topics show` prints it, not {text!r}.")
    # A weak tag (`W/"…"`) keeps its own quotes.
    return text if text == "*" or '"' in text else f'"{text}"'


if_match_option = click.option(
    "--if-match",
    metavar="ETAG",
    callback=entity_tag,
    help="Only if the topic still has this ETag, which `topics show` prints.",
)
FIELD_OPTIONS = (
    key_option,
    click.option("--type", help="Type of messages: json (default), text, binary or series."),
    click.option(
        "--conflation",
        metavar="POLICY",
        help="Queue policy: conflate (default), always, unsubscribe or off.",
    ),
    click.option(
        "--history", metavar="N", type=COUNT, help="Number of messages that the journal keeps."
    ),
    click.option("--description", metavar="TEXT", help="A description for people."),
    click.option(
        "--set",
        "assigned",
        metavar="FIELD=VALUE",
        multiple=True,
        callback=_assignments,
        help="Set any field; VALUE is JSON, else text: --set priority=high --set expiration=null.",
    ),
    click.option(
        "--from",
        "file",
        metavar="FILE",
        help="Definition in a .json or .toml file, or JSON on standard input (-); of a .toml with "
        "[topics] tables, this topic's.",
    ),
)


def field_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a definition; flags override the file, `--set` overrides both."""
    # click shows options in the order of decorators, and the last applied comes first.
    for option in reversed(FIELD_OPTIONS):
        function = option(function)
    return function


@click.group(
    epilog="\b\nExamples:\n  tidegate topics list\n  tidegate topics create prices --key /symbol",
    no_args_is_help=False,
)
def topics() -> None:
    """List, show, create, update, delete topics."""


@topics.command("list", epilog="\b\nExample:\n  tidegate topics list --prefix market.")
@click.option("--prefix", default="", help="Only topics whose name begins with this.")
@gateway_option
def list_topics(prefix: str, gateway: str) -> int:
    """List every topic: a table on a terminal, else NDJSON."""
    with connect(gateway) as client:
        print_list(client.topics(prefix), TOPIC_COLUMNS)
    return DONE


@topics.command("show", epilog="\b\nExample:\n  tidegate topics show prices")
@topic_argument
@gateway_option
def show_topic(topic: str, gateway: str) -> int:
    """Show a topic's definition, its ETag and live figures."""
    with connect(gateway) as client:
        found = client.administration.topic(topic)
    print_document(found.document | {"etag": found.etag})
    return DONE


@topics.command(
    "create",
    epilog=(
        "\b\nExamples:\n"
        "  tidegate topics create prices --key /symbol --history 100000\n"
        "  tidegate topics create orders --key /account,/orderId --new\n"
        "  tidegate topics create prices --from topics.toml"
    ),
)
@topic_argument
@field_options
@click.option("--new", is_flag=True, help="Fail if the topic exists.")
@if_match_option
@gateway_option
def create_topic(topic: str, new: bool, if_match: str | None, gateway: str, **fields: Any) -> int:
    """Create a topic, or replace its definition."""
    definition = definition_of(topic, **fields)
    with connect(gateway) as client, advising(topic):
        found = client.administration.put_topic(topic, definition, if_match=if_match, only_new=new)
    print_line(f"{'Created' if found.is_new else 'Replaced'} topic {topic}, ETag {found.etag}")
    return DONE


# Separate from `create`, which replaces: a field that is not named would get its default.
@topics.command(
    "update",
    epilog=(
        "\b\nExample:\n  tidegate topics update prices --set expiration=1d --set description=null"
    ),
)
@topic_argument
@field_options
@if_match_option
@gateway_option
def update_topic(topic: str, if_match: str | None, gateway: str, **fields: Any) -> int:
    """Change some fields of a definition.

    This is a JSON Merge Patch: fields that are not named stay, and null restores a default.
    """
    patch = definition_of(topic, **fields)
    # An empty patch would succeed and do nothing; most likely a flag was forgotten.
    if not patch:
        raise UsageInvalid("nothing to change: use --set, --from or the flag of a field")
    with connect(gateway) as client, advising(topic):
        found = client.administration.patch_topic(topic, patch, if_match=if_match)
    print_line(f"Updated topic {topic}, ETag {found.etag}")
    return DONE


@topics.command("delete", epilog="\b\nExample:\n  tidegate topics delete prices")
@topic_argument
@if_match_option
@gateway_option
def delete_topic(topic: str, if_match: str | None, gateway: str) -> int:
    """Delete a topic and its messages."""
    with connect(gateway) as client:
        client.administration.delete_topic(topic, if_match=if_match)
    print_line(f"Deleted topic {topic}")
    return DONE


@click.group(
    epilog="\b\nExamples:\n  tidegate sessions list\n  tidegate sessions show sV1f3pQ0bq7yZk2c",
    no_args_is_help=False,
)
def sessions() -> None:
    """List, show, close, conflate sessions."""


@sessions.command("list", epilog="\b\nExample:\n  tidegate sessions list | jq .session")
@gateway_option
def list_sessions(gateway: str) -> int:
    """List open sessions: a table on a terminal, else NDJSON."""
    with connect(gateway) as client:
        print_list(client.administration.sessions(), SESSION_COLUMNS)
    return DONE


@sessions.command("show", epilog="\b\nExample:\n  tidegate sessions show sV1f3pQ0bq7yZk2c")
@click.argument("session")
@gateway_option
def show_session(session: str, gateway: str) -> int:
    """Show a session's state, its queue and its subscriptions."""
    with connect(gateway) as client:
        print_document(client.administration.session(session))
    return DONE


@sessions.command("close", epilog="\b\nExample:\n  tidegate sessions close sV1f3pQ0bq7yZk2c")
@click.argument("session")
@gateway_option
def close_session(session: str, gateway: str) -> int:
    """Close a session; its reader gets the goodbye CLOSED_BY_ADMIN."""
    with connect(gateway) as client:
        client.administration.close_session(session)
    print_line(f"Closed session {session}")
    return DONE


@sessions.command(
    "conflate", epilog="\b\nExample:\n  tidegate sessions conflate sV1f3pQ0bq7yZk2c off"
)
@click.argument("session")
@click.argument("switched", metavar="on|off", type=click.Choice(["on", "off"]))
@gateway_option
def conflate_session(session: str, switched: str, gateway: str) -> int:
    """Turn the queue policies of a session's topics on or off."""
    conflated = switched == "on"
    with connect(gateway) as client:
        client.administration.tune_session(session, conflated=conflated)
    print_line(f"Session {session} is {'' if conflated else 'not '}conflated")
    return DONE


@contextlib.contextmanager
def advising(topic: str) -> Iterator[None]:
    """Add to a refusal because of the topic's messages the command that deletes the topic.

    Raises:
        CommandError: in place of a GatewayProblem.
    """
    from tidegate.clients.errors import GatewayProblem

    try:
        yield
    except GatewayProblem as problem:
        if problem.code != "topic-conflict":
            raise
        raise CommandError(f"{problem} The command is: {PROGRAM} topics delete {topic}") from None


def definition_of(
    topic: str,
    *,
    file: str | None,
    key_paths: Sequence[str],
    history: int | None,
    assigned: dict[str, object],
    **texts: str | None,
) -> dict[str, Any]:
    """Return the definition that file and flags give together.

    Raises:
        UsageInvalid: the file cannot be read, or has no definition of this topic.
    """
    definition = {} if file is None else _read(file, topic)
    if key_paths:
        # An empty text is a definition without a key, which differs from no flag at all.
        definition["key"] = paths_of(key_paths)
    if history is not None:
        definition["history"] = {"messages": history}
    definition |= {name: text for name, text in texts.items() if text is not None}
    # `--set` last: it is the most specific, and can set fields that have no flag.
    return definition | assigned


def _read(file: str, topic: str) -> dict[str, Any]:
    try:
        raw = standard_input().read() if file == "-" else Path(file).read_bytes()
        if file.lower().endswith(".toml"):
            return _table(file, tomllib.loads(raw.decode()), topic)
        found = msgspec.json.decode(raw)
    except OSError as error:
        raise UsageInvalid(f"cannot read {file}: {error.strerror or error}") from None
    except ValueError as error:
        kind = "TOML" if file.lower().endswith(".toml") else "JSON"
        raise UsageInvalid(f"{file} is not {kind}: {error}") from None
    if not isinstance(found, dict):
        raise UsageInvalid(f"{file} is not a JSON object")
    return found


def _table(file: str, document: dict[str, Any], topic: str) -> dict[str, Any]:
    """Return the whole document, or the topic's table of a file for `serve --topics`."""
    if "topics" not in document:
        return document
    found = document["topics"].get(topic) if isinstance(document["topics"], dict) else None
    if not isinstance(found, dict):
        raise UsageInvalid(f"{file} has no topic {topic}")
    return found
