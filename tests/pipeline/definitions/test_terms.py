"""Each term of the languages of keys and filters is told with its place, and the position in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidegate.keys.reducers import Reduce
from tidegate.pipeline.definitions.terms import (
    bracketed,
    read_filter,
    read_list,
    read_path,
    read_paths,
)
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import DefinitionInvalid


def table(**fields: object) -> TomlTable:
    return TomlTable(fields, "s.toml", "")


def reducers(given: TomlTable) -> Reduce:
    return read_list(given, "reduce", "reducers", lambda texts: Reduce.parse(*bracketed(texts)))


def test_terms_are_read() -> None:
    assert read_filter(table()) is None
    assert str(read_filter(table(filter="/a>1"))) == "/a > 1"
    assert str(read_path(table(field="$.a.b"), "field", "a path")) == "/a/b"
    assert str(read_paths(table(key=["/a", "$.b.c"]), "key")) == "[/a,/b/c]"
    assert str(reducers(table(reduce=["/a:sum", " /b:max@c"]))) == "[/a:sum,/b:max@c]"


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (
            lambda: read_filter(table(filter=" ")),
            "filter: expected a filter, such as /qty > 0, found",
        ),
        (lambda: read_filter(table(filter="/a >")), "filter, position 4: expected a value"),
        (lambda: read_filter(table(filter="/a = b")), "filter, position 5: expected a value"),
        (lambda: read_path(table(at="/a//b"), "at", "a path"), "at, position 2: expected /name"),
        (lambda: read_paths(table(key=["/a", "/b/"]), "key"), "key[1], position 2: expected /name"),
        (lambda: read_paths(table(key=["/a", "/a"]), "key"), "key[1], position 0: a path stands"),
        (lambda: read_paths(table(key=["/a,/b"]), "key"), "key[0], position 2: expected /name"),
        (lambda: read_paths(table(key=[]), "key"), "key: expected field paths, such as"),
        (lambda: read_paths(table(), "key"), "key: is missing, expected field paths, such as"),
        (lambda: reducers(table(reduce=["/a:sum", "/b:most", "c"])), "reduce[1], position 3: "),
        (lambda: reducers(table(reduce=["/a:sum", " b:sum"])), "reduce[1], position 1: a field"),
        (lambda: reducers(table(reduce=["/a:sum", "/a:max"])), "reduce[1], position 0: two red"),
    ],
)
def test_a_mistake_has_a_position(read: Callable[[], object], said: str) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        read()
    assert str(caught.value).startswith(f"s.toml: {said}")
