"""Types of a definition's fields: what they read, what they write again, what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.app.definitions.fields import Placement
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import SECOND

REGISTERED = Mergers({"m:f": lambda current, new: new})


def defined(**fields: object) -> TopicDefinition:
    return TopicDefinition.of(fields, mergers=REGISTERED)


def written(**fields: object) -> dict[str, Any]:
    return defined(**fields).document()


def test_one_place_has_one_spelling() -> None:
    assert defined(key=["$.a.b", "/c"]).key_spec == KeySpec.of(["/a/b", "/c"])


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
    assert written(merge=given)["merge"] == shown
    assert defined(merge=shown) == defined(merge=given)


@pytest.mark.parametrize(("given", "shown"), [(None, None), (["$.a"], ["/a"]), ("m:f", "m:f")])
def test_a_match_is_shown_as_it_can_be_read(given: object, shown: object) -> None:
    assert written(match=given)["match"] == shown
    assert defined(match=shown) == defined(match=given)


def test_reducers_are_those_of_the_options() -> None:
    assert defined(merge={"/q": "sum"}).merge == Reduce.parse("[/q:sum]")


def test_options_are_kept_as_they_are_written() -> None:
    assert written(options=" conflation = 1S,")["options"] == " conflation = 1S,"
    with pytest.raises(Refused) as refused:
        defined(options="oof,oof")
    assert (refused.value.code, refused.value.position) == ("options-invalid", 4)


def test_an_expiration_has_a_unit() -> None:
    assert defined(expiration="2s").expiration_ns == 2 * SECOND
    assert defined(expiration=None).expiration_ns is None
    for wrong in (2, "2", "0ms"):
        with pytest.raises(Refused):
            defined(expiration=wrong)


def test_a_history_is_kept_as_it_is_written() -> None:
    history = {"messages": (1 << 53), "age": "90m", "bytes": "1024KiB"}
    assert written(history=history)["history"] == history
    for wrong in ({"messages": (1 << 53) + 1}, {"messages": None}, {"age": None}):
        with pytest.raises(Refused):
            defined(history=wrong)


def test_words_and_flags_are_taken_exactly() -> None:
    assert defined(placement="replace").placement is Placement.REPLACE
    assert defined(values_only=False).values_only is False
    for wrong in ({"placement": "Replace"}, {"values_only": 1}, {"values_only": "true"}):
        with pytest.raises(Refused):
            defined(**wrong)


def test_a_schema_is_compiled_or_refused() -> None:
    assert defined(schema=None).message_schema is None
    schema = defined(schema={"type": "object"}).message_schema
    assert schema is not None
    schema.check(b"{}")
    with pytest.raises(Refused) as refused:
        defined(schema={"properties": {"a": 1}})
    assert refused.value.pointer == "/schema/properties/a"


SENTENCES: list[tuple[dict[str, object], str]] = [
    ({"type": 7}, "type is json, text, binary or series."),
    ({"retain": "yes"}, "retain is true or false."),
    ({"key": "/k"}, "key is a list of field paths."),
    ({"options": 7}, "options is a text."),
    ({"description": "x" * 4_097}, "description has at most 4096 characters."),
    ({"expiration": 7}, "expiration is a text."),
    ({"expiration": "0s"}, "expiration is 1ms or longer."),
    ({"history": {}}, "history has messages, age and bytes, at least one of them."),
    ({"history": {"messages": -1}}, "messages is at least 0."),
    ({"merge": {"/a": 1}}, "merge has a text for each path."),
    ({"source": {"topic": "../x", "interval": "9s"}}, "topic does not have the form ^["),
    ({"source": {"topic": "px"}}, "interval is missing."),
    ({"source": {"topic": "px", "interval": "9s", "filter": 7}}, "filter is a text."),
]


@pytest.mark.parametrize(("fields", "sentence"), SENTENCES, ids=lambda each: str(each)[:60])
def test_a_refusal_is_a_sentence(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        defined(**fields)
    assert refused.value.detail.startswith(sentence)
