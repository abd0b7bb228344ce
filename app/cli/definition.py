"""A topic's definition, or a part of it, from files and flags of the command line."""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from app.cli.arguments import count
from app.cli.errors import UsageInvalid

ASSIGNED = ("type", "conflation", "description")


def add_fields(parser: argparse.ArgumentParser) -> None:
    """Flags that say what a definition is to be; flags win over the file, `--set` over all."""
    parser.add_argument("--key", metavar="PATHS", help="SOW key, such as /symbol,/venue")
    parser.add_argument("--type", help="json (the default), text, binary or series")
    parser.add_argument(
        "--conflation", metavar="POLICY", help="conflate (the default), always, unsubscribe or off"
    )
    parser.add_argument("--history", metavar="N", type=count, help="messages the journal keeps")
    parser.add_argument("--description", metavar="TEXT")
    parser.add_argument(
        "--set",
        metavar="FIELD=VALUE",
        type=assignment,
        action="append",
        default=[],
        help="any field; VALUE is JSON, or else a text: --set priority=high --set expiration=null",
    )
    parser.add_argument(
        "--from",
        dest="file",
        metavar="FILE",
        help="a .json or .toml file, - for JSON on standard input; "
        "of a .toml with [topics] tables the one of this topic",
    )


def definition_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The definition that file and flags describe together.

    Raises:
        UsageInvalid: the file cannot be read, or says nothing of this topic.
    """
    file: str | None = arguments.file
    definition = {} if file is None else _read(file, arguments.topic)
    if arguments.key is not None:
        definition["key"] = [path.strip() for path in arguments.key.split(",") if path.strip()]
    if arguments.history is not None:
        definition["history"] = {"messages": arguments.history}
    for name in ASSIGNED:
        if getattr(arguments, name) is not None:
            definition[name] = getattr(arguments, name)
    return definition | dict(arguments.set)


def assignment(text: str) -> tuple[str, object]:
    """`field=value` as a pair; a value that is not JSON is the text itself."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"expected FIELD=VALUE, not {text!r}")
    try:
        return name.strip(), msgspec.json.decode(value)
    except ValueError:
        return name.strip(), value


def entity_tag(text: str) -> str:
    """An ETag as the gateway shows it; quotes that a shell took away are put back."""
    if not text or not all("!" <= character <= "~" for character in text):
        raise argparse.ArgumentTypeError(
            f"expected an ETag such as topics show gives, not {text!r}"
        )
    return text if text == "*" or '"' in text else f'"{text}"'


def _read(file: str, topic: str) -> dict[str, Any]:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
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
    """The whole document, or the topic's table of a file for `serve --topics`."""
    if "topics" not in document:
        return document
    found = document["topics"].get(topic) if isinstance(document["topics"], dict) else None
    if not isinstance(found, dict):
        raise UsageInvalid(f"{file} has no topic {topic}")
    return found
