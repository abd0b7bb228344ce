"""Readers of a topic's fields: what they read and what they show again."""

from __future__ import annotations

import pytest

from tidegate.app.definitions.fields import (
    Placement,
    choice_reader,
    flag_reader,
    match_reader,
    match_shown,
    merge_reader,
    merge_shown,
    read_expiration,
    read_key,
    read_options,
    read_schema,
)
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.http.problems import Problem
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import SECOND

REGISTERED = Mergers({"m:f": lambda current, new: new})


def test_one_place_has_one_spelling() -> None:
    assert read_key(["$.a.b", "/c"]) == KeySpec.of(["/a/b", "/c"])


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("replace", "replace"),
        ({"/px": "max@hi", "$.q": "sum"}, {"/px": "max@hi", "/q": "sum"}),
        ({"$['a b']": "first"}, {"$['a b']": "first"}),
        ("m:f", "m:f"),
    ],
)
def test_a_merge_is_shown_as_it_can_be_read(given: object, shown: object) -> None:
    read = merge_reader(REGISTERED)
    assert merge_shown(read(given)) == shown
    assert read(shown) == read(given)


@pytest.mark.parametrize(("given", "shown"), [(None, None), (["$.a"], ["/a"]), ("m:f", "m:f")])
def test_a_match_is_shown_as_it_can_be_read(given: object, shown: object) -> None:
    read = match_reader(REGISTERED)
    assert match_shown(read(given)) == shown
    assert read(shown) == read(given)


def test_reducers_are_those_of_the_options() -> None:
    assert merge_reader(REGISTERED)({"/q": "sum"}) == Reduce.parse("[/q:sum]")


def test_options_are_kept_as_they_are_written() -> None:
    assert read_options(" conflation = 1S,") == " conflation = 1S,"
    with pytest.raises(Problem) as refused:
        read_options("oof,oof")
    assert (refused.value.code, refused.value.position) == ("options-invalid", 4)


def test_an_expiration_has_a_unit() -> None:
    assert read_expiration("2s") == 2 * SECOND
    assert read_expiration(None) is None
    for wrong in (2, "2", "0ms"):
        with pytest.raises(Problem):
            read_expiration(wrong)


def test_words_and_flags_are_taken_exactly() -> None:
    assert choice_reader(Placement, "placement")("replace") is Placement.REPLACE
    assert flag_reader("values_only")(False) is False
    for reader, wrong in (
        (choice_reader(Placement, "placement"), "Replace"),
        (flag_reader("values_only"), 1),
    ):
        with pytest.raises(Problem):
            reader(wrong)


def test_a_schema_is_compiled_or_refused() -> None:
    assert read_schema(None) is None
    schema = read_schema({"type": "object"})
    assert schema is not None
    schema.check(b"{}")
    with pytest.raises(Problem) as refused:
        read_schema({"properties": {"a": 1}})
    assert refused.value.pointer == "/schema/properties/a"
