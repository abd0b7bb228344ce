"""Functions named by the setting `mergers`, which `merge` and `match` of a topic may name."""

from __future__ import annotations

import importlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from tidegate.keys.merging import Function, Matcher, Merger

logger = logging.getLogger("tidegate.mergers")


class MergersInvalid(Exception):
    """A function of the setting `mergers` cannot be used; `str()` is one line."""


class Mergers:
    """The functions of the setting `mergers`, by their names `package.module:function`.

    A function that raises, or returns no JSON, leaves messages unconflated. `failures` counts
    this by name; the log has the first.
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
        """The names that a topic may use."""
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
        # A merger fails on each message of a kind, so a line for each would fill the disk.
        if self.failures[name] == 1:
            logger.error("%s failed (logged once): messages stay unconflated", name, exc_info=error)


def _imported(name: str) -> Function:
    module_name, _, attribute = name.partition(":")
    try:
        # Any exception counts: an import runs the operator's code, which may raise anything.
        function = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise MergersInvalid(f"{name} cannot be imported: {reason}") from None
    if not callable(function):
        raise MergersInvalid(f"{name} is not a function")
    found: Function = function
    return found


NO_MERGERS = Mergers()
