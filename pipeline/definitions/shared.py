"""What the definition files of `tidegate pipeline run`, `ingest` and `forward` have in common."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

from tidegate.clients import DEFAULT_ADDRESS
from tidegate.pipeline.connection import default_gateway
from tidegate.pipeline.definitions.toml import STREAM, TOPIC, TomlTable, read_toml
from tidegate.pipeline.errors import DefinitionInvalid, ExtraMissing, UsageInvalid

COMMANDS = {
    "pipeline": "tidegate pipeline run",
    "ingest": "tidegate ingest",
    "forward": "tidegate forward",
}
"""The command that each section of a definition file belongs to."""


def read_named_tables(
    path: Path, section: str, gateway: str | None
) -> tuple[str, list[tuple[str, TomlTable]]]:
    """Return the gateway of a file and its tables `[section.NAME]`, in their order.

    Args:
        path: the file.
        section: one of `COMMANDS`; those of the others are refused.
        gateway: overrides the gateway that the file names.

    Raises:
        DefinitionInvalid: one line with the file, the place and what was expected.
        UsageInvalid: `gateway` is no address.
    """
    top = TomlTable(read_toml(path), path.name, "")
    # The environment is only a default: a file that names its gateway runs alike everywhere.
    named_here = top.text("gateway", default=default_gateway())
    if not _is_address(named_here):
        raise top.wrong("gateway", f"an address such as {DEFAULT_ADDRESS}", named_here)
    if gateway is not None and not _is_address(gateway):
        raise UsageInvalid(f"--gateway: expected an address such as {DEFAULT_ADDRESS}")
    for name in top.left:
        if name in COMMANDS and name != section:
            raise DefinitionInvalid(
                f"{top.where(name)}: runs with {COMMANDS[name]}, from a file of its own"
            )
    expected = f"at least one table [{section}.NAME]"
    named = top.table(section, expected)
    top.finish()
    if not named.left:
        raise top.missing(section, expected)
    tables = [(name, named.table(name, f"a table [{section}.NAME]")) for name in named.left]
    for name, table in tables:
        if not STREAM.fullmatch(name):
            place = table.where("")[:-1]
            raise DefinitionInvalid(f"{place}: a name is 1 to 63 of A-Z a-z 0-9 _ -")
    return (gateway or named_here).rstrip("/"), tables


def read_topic(table: TomlTable, field: str = "topic") -> str:
    """Take the name of a topic that is published to."""
    topic = table.checked(field, TOPIC.fullmatch, "a topic name")
    # The gateway's own topics have keys and publishers of their own.
    if topic.startswith("tidegate."):
        raise table.wrong(field, "a name outside the gateway's own tidegate.", topic)
    return topic


def read_dead_letters(table: TomlTable, topic: str, ending: str) -> str:
    """Take the topic of dead letters, which is not the one that they come from or go to.

    Args:
        table: of a source or a forward.
        topic: its topic.
        ending: what the default adds to it.
    """
    field = "dead_letters"
    if not table.has(field):
        return f"{topic}{ending}"
    found = read_topic(table, field)
    if found == topic:
        raise table.wrong(field, "another topic than that of the messages", found)
    return found


def module_of_kind(table: TomlTable, kinds: Mapping[str, str], package: str) -> ModuleType:
    """Take the field `kind`; return the module of the package that has its name.

    Args:
        table: of a source or a sink.
        kinds: the extra that each kind needs.
        package: has a module for each kind.

    Raises:
        ExtraMissing: the library of the kind is not installed.
    """
    expected = f"one of {', '.join(kinds)}"
    kind = table.text("kind", expected=expected)
    if kind not in kinds:
        raise table.wrong("kind", expected, kind)
    # By name: the libraries of other kinds need not be installed.
    try:
        return importlib.import_module(f"{package}.{kind}")
    except ImportError as error:
        raise ExtraMissing(
            f"{table.where('kind')}: {kind} needs the extra {kinds[kind]}, which is not installed: "
            f"pip install 'tidegate[{kinds[kind]}]' ({error})"
        ) from None


def _is_address(text: str) -> bool:
    """Return whether a text is the address of a gateway, its port within range."""
    try:
        return bool(re.fullmatch(r"https?://[^\s/]+/?", text)) and urlsplit(text).port != 0
    except ValueError:
        return False
