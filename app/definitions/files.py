"""Definitions of topics in a folder of TOML files: read, checked, and put in order.

A file has one table a topic, `[topics."prices.us"]`, with the fields of `PUT /v1/topics/{topic}`;
what is not written has its default.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import FIELDS, TopicDefinition
from tidegate.app.names import OWN_PREFIX, TOPIC_NAME
from tidegate.app.refusals import Refused

TABLE = "topics"
NAME_SHOWN_MAX = 80


class TopicFilesInvalid(Exception):
    """The folder cannot be used; `str()` is one line: file, topic, field, and what is wrong."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A topic as declared in a file; `file` is the file's name."""

    name: str
    document: TopicDefinition
    file: str

    def check_options(self, characters_max: int) -> None:
        """Refuse options that are longer than a request's may be.

        Raises:
            TopicFilesInvalid: they are.
        """
        try:
            self.document.check_options(characters_max)
        except Refused as refusal:
            self.refuse(refusal)

    def refuse(self, refusal: Refused) -> NoReturn:
        """Raise the error that names the file and the topic of a refusal.

        Raises:
            TopicFilesInvalid: always.
        """
        field = "" if refusal.pointer is None else f", field {refusal.pointer.lstrip('/')}"
        where = "" if refusal.position is None else f", position {refusal.position}"
        raise _invalid(self.file, f"topic {self.name}{field}{where}: {refusal.detail}")


def read_topic_files(folder: Path, mergers: Mergers) -> list[Declared]:
    """Read the topics of all `.toml` files in a folder, sources before derived topics.

    Raises:
        TopicFilesInvalid: no such folder, or the first thing that is wrong in it.
    """
    found: dict[str, Declared] = {}
    for fault in _read(folder, mergers, found):
        raise fault
    return in_order(found)


def topic_file_faults(folder: Path, mergers: Mergers, characters_max: int) -> list[str]:
    """Return everything that is wrong in a folder; `characters_max`: the most of options."""
    found: dict[str, Declared] = {}
    faults = list(_read(folder, mergers, found))
    try:
        for topic in found.values():
            topic.check_options(characters_max)
        in_order(found)
    except TopicFilesInvalid as fault:
        faults.append(fault)
    return [str(fault) for fault in faults]


def _read(
    folder: Path, mergers: Mergers, found: dict[str, Declared]
) -> Iterator[TopicFilesInvalid]:
    """Add the topics of a folder to `found`; yield what is wrong with those that are not."""
    try:
        paths = _files(folder)
    except TopicFilesInvalid as fault:
        yield fault
        return
    for path in paths:
        try:
            tables = _tables(path)
        except TopicFilesInvalid as fault:
            yield fault
            continue
        for name, fields in tables.items():
            try:
                declared = _declared(path.name, name, fields, mergers)
            except TopicFilesInvalid as fault:
                yield fault
                continue
            if name in found:
                yield _invalid(
                    path.name, f"topic {name}: it is already defined in {found[name].file}"
                )
            else:
                found[name] = declared


def in_order(declared: Mapping[str, Declared]) -> list[Declared]:
    """Return the topics with sources before derived topics, else by name.

    Raises:
        TopicFilesInvalid: a topic that would be filled from itself.
    """
    ordered: dict[str, Declared] = {}
    for name in sorted(declared):
        # The union keeps the place of what is there already, so a source stays before all that it
        # fills.
        ordered |= _behind_sources(declared[name], declared)
    return list(ordered.values())


def _behind_sources(topic: Declared, declared: Mapping[str, Declared]) -> dict[str, Declared]:
    """Return a topic after its declared sources, the farthest first."""
    chain: dict[str, Declared] = {}
    found: Declared | None = topic
    while found is not None:
        if found.name in chain:
            detail = "The topic would be filled from itself."
            found.refuse(Refused("source-cycle", detail, pointer="/source/topic"))
        chain[found.name] = found
        source = found.document.source
        found = None if source is None else declared.get(source.topic)
    return dict(reversed(chain.items()))


def _files(folder: Path) -> Iterable[Path]:
    # Sorted, so that the first error is the same on every machine.
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError as error:
        raise _invalid(str(folder), f"cannot be read: {error.strerror or error}") from None


def _tables(path: Path) -> Mapping[str, Any]:
    """Read the tables of one file, unchecked."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise _invalid(path.name, f"cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(path.name, f"not valid TOML: {error}") from None
    tables = document.pop(TABLE, {})
    if document:
        raise _invalid(path.name, f"{_shown(next(iter(document)))} is no [{TABLE}.NAME] table")
    if not isinstance(tables, dict):
        raise _invalid(path.name, f"{TABLE} is a table of topics")
    return tables


def _declared(file: str, name: str, fields: object, mergers: Mergers) -> Declared:
    if not TOPIC_NAME.fullmatch(name):
        raise _invalid(file, f"topic {_shown(name)}: a name is 1 to 255 of A-Z a-z 0-9 . _ -")
    if name.startswith(OWN_PREFIX):
        raise _invalid(file, f"topic {name}: topics whose name starts with tidegate. are read-only")
    if not isinstance(fields, dict):
        raise _invalid(file, f"topic {name}: it is not a table")
    for field in sorted(fields.keys() - set(FIELDS)):
        raise _invalid(
            file, f"topic {name}, field {_shown(field)}: {_unknown(field, fields[field])}"
        )
    # The fields go the way of a PUT, so that a file and a request mean the same.
    try:
        body = json.dumps(fields, allow_nan=False).encode()
    except (TypeError, ValueError):
        raise _invalid(file, f"topic {name}: JSON has no dates, no inf and no nan") from None
    try:
        return Declared(name, TopicDefinition.parse(body, mergers), file)
    except Refused as refusal:
        Declared(name, TopicDefinition(), file).refuse(refusal)


def _unknown(field: str, value: object) -> str:
    """Return the message about an unknown field."""
    # [topics.a.b] is the field b of topic a, and seldom what its writer meant.
    if isinstance(value, dict):
        return "no such field; a topic name with dots must be in quotes"
    close = difflib.get_close_matches(field, FIELDS, n=1)
    return "no such field" + (f"; did you mean {close[0]}?" if close else "")


def _invalid(place: str, what: str) -> TopicFilesInvalid:
    return TopicFilesInvalid(" ".join(f"{place}: {what}".split()).removesuffix("."))


def _shown(name: str) -> str:
    return ascii(name if len(name) <= NAME_SHOWN_MAX else f"{name[:NAME_SHOWN_MAX]}…")
