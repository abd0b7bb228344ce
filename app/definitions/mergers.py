"""The fields `merge` and `match`, and the operator's functions that they may name."""

from __future__ import annotations

import importlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, ValidationInfo

from tidegate.app.definitions.fields import Path, paths_of, read_paths
from tidegate.keys.merging import Function, Matcher, Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

REPLACES = "replace"

logger = logging.getLogger("tidegate.mergers")


class MergersInvalid(Exception):
    """A function of the setting `mergers` cannot be used; `str()` is one line."""


class Mergers:
    """The functions of the setting `mergers`, by their names `package.module:function`.

    One that raises, or answers what is no JSON, counts as *no conflation*: `failures` has how
    often, the log the first time.
    """

    def __init__(self, functions: Mapping[str, Function] | None = None) -> None:
        self.failures: Counter[str] = Counter()
        self._functions = dict(functions or {})

    @classmethod
    def load(cls, names: Iterable[str]) -> Mergers:
        """Import each function, once.

        Raises:
            MergersInvalid: one that is not there, or cannot be called.
        """
        return cls({name: _imported(name) for name in names})

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a topic may say."""
        return tuple(self._functions)

    def merger(self, name: str) -> Merger | None:
        """Return the merger of this name; None if it is not registered."""
        function = self._functions.get(name)
        return None if function is None else Merger(name, function, self._failed)

    def matcher(self, name: str) -> Matcher | None:
        """Return the matcher of this name; None if it is not registered."""
        function = self._functions.get(name)
        return None if function is None else Matcher(name, function, self._failed)

    def _failed(self, name: str, error: Exception) -> None:
        self.failures[name] += 1
        if self.failures[name] == 1:
            logger.error("%s failed (logged once): messages stay unconflated", name, exc_info=error)


def _imported(name: str) -> Function:
    module_name, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise MergersInvalid(f"{name} cannot be imported: {reason}") from None
    if not callable(function):
        raise MergersInvalid(f"{name} is not a function")
    found: Function = function
    return found


NO_MERGERS = Mergers()


def _merge(value: object, info: ValidationInfo) -> Reduce | Merger | None:
    if value == REPLACES:
        return None
    if isinstance(value, dict) and value:
        return _reduce(value)
    merger = _mergers(info).merger(value) if isinstance(value, str) else None
    if merger is None:
        known = "replace, an object from field path to reducer, or a merger"
        raise ValueError(f"is {known} that the setting mergers names")
    return merger


def _reduce(reducers: Mapping[str, Any]) -> Reduce:
    if not all(isinstance(reducer, str) for reducer in reducers.values()):
        raise ValueError("has a text for each path")
    reduce = Reduce.of(reducers)
    # JSON allows a name once, but /a and $.a are two names of one path.
    if len({one.path for one in reduce.columns}) < len(reduce.columns):
        raise ValueError("has a path twice")
    return reduce


def _written_merge(merge: Reduce | Merger | None) -> Any:
    if isinstance(merge, Reduce):
        return {str(one.path): str(one).removeprefix(f"{one.path}:") for one in merge.columns}
    return REPLACES if merge is None else str(merge)


def _match(value: object, info: ValidationInfo) -> KeySpec | Matcher | None:
    if value is None:
        return None
    if isinstance(value, list) and value:
        return read_paths(value)
    matcher = _mergers(info).matcher(value) if isinstance(value, str) else None
    if matcher is None:
        known = "null, a list of field paths, or a matcher"
        raise ValueError(f"is {known} that the setting mergers names")
    return matcher


def _written_match(match: KeySpec | Matcher | None) -> Any:
    return str(match) if isinstance(match, Matcher) else paths_of(match)


def _mergers(info: ValidationInfo) -> Mergers:
    """Return the functions that `TopicDefinition.parse` was given."""
    mergers: Mergers = (info.context or {}).get("mergers", NO_MERGERS)
    return mergers


Merge = Annotated[
    Reduce | Merger | None,
    PlainValidator(_merge, json_schema_input_type=dict[str, str] | str),
    PlainSerializer(_written_merge, return_type=dict[str, str] | str),
]
"""A reducer of fields, a registered merger, or None: the newest replaces the older ones."""

Match = Annotated[
    KeySpec | Matcher | None,
    PlainValidator(_match, json_schema_input_type=list[Path] | str | None),
    PlainSerializer(_written_match, return_type=list[Path] | str | None),
]
"""The fields of queued messages that may conflate, a registered matcher, or None: the key."""
