"""Registered mergers and matchers: the operator's functions, held so that they can hurt nobody."""

from __future__ import annotations

import importlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from app.settings import SettingsInvalid
from conflation.merging import Matcher, Merger, Verdict
from keys.jsontext import check_json

Function = Callable[[Any, Any], Any]

logger = logging.getLogger("tidegate.mergers")


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
            SettingsInvalid: one that is not there, or cannot be called.
        """
        return cls({name: _imported(name) for name in names})

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a topic may say."""
        return tuple(self._functions)

    def merger(self, name: str) -> Merger | None:
        """The merger of this name, None if it is not registered."""
        function = self._functions.get(name)
        if function is None:
            return None

        def merged(current: Any, new: Any) -> Any:
            try:
                answer = function(current, new)
                if not isinstance(answer, Verdict):
                    check_json(msgspec.json.encode(answer))
            except Exception as error:
                self._failed(name, error)
                return Verdict.NO_CONFLATION
            return answer

        return Merger(name, merged)

    def matcher(self, name: str) -> Matcher | None:
        """The matcher of this name, None if it is not registered."""
        function = self._functions.get(name)
        if function is None:
            return None

        def matches(current: Any, new: Any) -> bool:
            try:
                return bool(function(current, new))
            except Exception as error:
                self._failed(name, error)
                return False

        return Matcher(name, matches)

    def _failed(self, name: str, error: Exception) -> None:
        self.failures[name] += 1
        if self.failures[name] == 1:
            logger.error("%s failed, which is told once: not conflated", name, exc_info=error)


def _imported(name: str) -> Function:
    module_name, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise SettingsInvalid(f"mergers: {name} cannot be imported: {reason}") from None
    if not callable(function):
        raise SettingsInvalid(f"mergers: {name} is not a function")
    found: Function = function
    return found
