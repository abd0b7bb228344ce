"""JSONPath text to plain steps: jsonpath-ng parses, only fixed places are taken."""

from __future__ import annotations

from functools import lru_cache

from jsonpath_ng.exceptions import JSONPathError
from jsonpath_ng.jsonpath import Child, Fields, Index, JSONPath, Root
from jsonpath_ng.parser import JsonPathParser

from keys.errors import PathInvalid

TEXT_LENGTH_MAX = 1_024


@lru_cache(maxsize=1_024)
def _parsed(text: str) -> JSONPath:
    return JsonPathParser().parse(text)


def jsonpath_steps(text: str, position: int = 0) -> tuple[str | int, ...]:
    """The names and indexes of a JSONPath such as `$.a['b c'][0]`.

    A key is one value, so wildcards, slices, filters and `..` are refused.

    Raises:
        PathInvalid: not JSONPath, or one that can name more than one place.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise PathInvalid(f"a JSONPath has at most {TEXT_LENGTH_MAX} characters", position)
    try:
        tree = _parsed(text)
    except (JSONPathError, RecursionError, DeprecationWarning) as error:
        # jsonpath-ng warns of operators that it will drop; all of them name several places
        raise PathInvalid("not a JSONPath", position) from error
    steps: list[str | int] = []
    _collect(tree, steps, position)
    if not steps:
        raise PathInvalid("a field path names at least one field", position)
    return tuple(steps)


def _collect(tree: JSONPath, steps: list[str | int], position: int) -> None:
    if isinstance(tree, Child):
        _collect(tree.left, steps, position)
        _collect(tree.right, steps, position)
    elif isinstance(tree, Fields) and len(tree.fields) == 1 and tree.fields[0] != "*":
        steps.append(tree.fields[0])
    elif isinstance(tree, Index) and len(tree.indices) == 1 and tree.indices[0] >= 0:
        steps.append(tree.indices[0])
    elif not isinstance(tree, Root):
        raise PathInvalid("a JSONPath here names one place", position)
