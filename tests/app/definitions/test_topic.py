"""The JSON document of a topic: what each field takes, and what is refused where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.app.definitions.fields import FilledBy, Placement
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.schema import Schema
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused
from tidegate.conflation.definition import History, Kind, Priority, QueuePolicy, match_of
from tidegate.keys.filter import Filter
from tidegate.keys.merging import Matcher, Merger
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import DAY, MILLISECOND, SECOND

MESSAGES_MAX, BYTES_MAX = 77, 1 << 20
"""Of a journal whose topic does not say it."""


def parse(document: object) -> TopicDefinition:
    return TopicDefinition.parse(json.dumps(document).encode())


def test_an_empty_document_is_a_plain_topic_that_conflates() -> None:
    assert parse({}) == TopicDefinition()
    assert parse({}).document() == {
        "key": [], "conflation": "conflate", "options": "", "placement": "append", "match": None,
        "merge": "replace", "type": "json", "retain": False, "values_only": False,
        "priority": "default", "expiration": None, "history": None, "schema": None,
        "tidy_on_unsubscribe": False, "source": None, "description": "",
    }  # fmt: skip


EVERYTHING = {
    "key": ["/k", "/a/b"],
    "conflation": "off",
    "options": "conflation=1s,pace=key",
    "placement": "replace",
    "match": ["/side"],
    "merge": {"/qty": "sum", "/px": "max@hi"},
    "type": "json",
    "retain": False,
    "values_only": True,
    "priority": "high",
    "expiration": "90m",
    "history": {"messages": 7, "age": "1h", "bytes": "1MiB"},
    "schema": {"type": "object"},
    "tidy_on_unsubscribe": True,
    "source": {
        "topic": "px", "interval": "1s", "filter": "/a > 1", "grouping": ["/k", "/a/b"],
        "projection": ["SUM(/q) AS /t"], "engine": "gateway",
    },
    "description": "prices",
}  # fmt: skip


def test_every_field_is_read_and_shown() -> None:
    document = parse(EVERYTHING)
    assert document.document() == EVERYTHING
    assert document.key_spec == KeySpec.of(["/k", "/a/b"])
    assert document.policy is QueuePolicy.OFF
    assert document.placement is Placement.REPLACE
    assert document.merge == Reduce.parse("[/qty:sum,/px:max@hi]")
    assert document.match == KeySpec.of(["/side"])
    assert document.priority is Priority.HIGH
    assert document.expiration_ns == 90 * 60 * SECOND
    assert document.message_schema == Schema.compile({"type": "object"})
    source = document.source
    assert source is not None
    assert (source.topic, source.interval_ns, source.engine) == ("px", SECOND, FilledBy.GATEWAY)
    assert source.filter == Filter.parse("/a > 1")
    assert source.projection == Projection.parse("[SUM(/q) AS /t]", 0, "[/k,/a/b]", 0)


def test_a_registered_function_is_merger_and_matcher() -> None:
    body = b'{"merge":"m:f","match":"m:f"}'
    document = TopicDefinition.parse(body, Mergers({"m:f": lambda current, new: new}))
    assert isinstance(document.merge, Merger)
    assert isinstance(document.match, Matcher)
    assert document.document()["merge"] == document.document()["match"] == "m:f"


@rule("topic-1")
@pytest.mark.parametrize(
    ("document", "retains"),
    [
        ({}, False),
        ({"key": ["/k"]}, True),
        ({"retain": True}, True),
        ({"key": ["/k"], "retain": False}, False),
        ({"retain": None}, False),
    ],
)
def test_a_topic_with_a_key_retains_unless_its_definition_forbids(
    document: dict[str, object], retains: bool
) -> None:
    assert parse(document).retains is retains
    assert parse({**document, "retain": retains}) == parse(document)


@rule("topic-1")
def test_to_the_engine_a_topic_that_keeps_nothing_has_no_key() -> None:
    """It is still what its queues are conflated by."""
    definition = parse({"key": ["/k"], "retain": False}).definition(MESSAGES_MAX, BYTES_MAX)
    assert (definition.key_spec, definition.retains) == (KeySpec(), False)
    assert definition.conflation_key == match_of(definition, KeySpec()) == KeySpec.of(["/k"])
    kept = parse({"key": ["/k"]}).definition(MESSAGES_MAX, BYTES_MAX)
    assert (kept.key_spec, kept.retains) == (KeySpec.of(["/k"]), True)
    assert (kept.unkept_key, match_of(kept, kept.key_spec)) == (KeySpec(), None)


def test_the_engine_gets_what_it_needs() -> None:
    given = {
        "key": ["/k"], "merge": {"/q": "sum"}, "match": ["/s"], "placement": "replace",
        "values_only": True, "expiration": "1s", "conflation": "off",
    }  # fmt: skip
    definition = parse(given).definition(MESSAGES_MAX, BYTES_MAX)
    assert definition.merge == Reduce.parse("[/q:sum]")
    assert definition.match == KeySpec.of(["/s"])
    assert definition.replaces
    assert definition.values_only
    assert definition.expiration_ns == SECOND
    assert definition.policy is QueuePolicy.OFF
    assert definition.kind is Kind.JSON


@rule("topic-5")
def test_a_series_is_off_by_default() -> None:
    assert parse({"type": "series"}).document()["conflation"] == "off"
    assert parse({"type": "series", "conflation": "off"}) == parse({"type": "series"})
    assert parse({"type": "series", "key": ["/k"]}).retains


PX = {"topic": "px", "interval": "1s"}
VIEW = {**PX, "grouping": ["/g"], "projection": ["COUNT(/k) AS /n"]}
FILLED = [
    ({"source": PX}, {"key": ["/k"]}, ["/k"]),
    ({"source": PX, "key": ["$.k"]}, {"key": ["/k"]}, ["/k"]),
    ({"source": VIEW}, {"key": ["/k"]}, ["/g"]),
    ({"source": VIEW, "key": ["/g"]}, {"key": ["/k"]}, ["/g"]),
    ({"source": PX, "key": ["/a"]}, {}, ["/a"]),
    ({"source": PX}, {"key": ["/k"], "retain": False}, ["/k"]),
]


@rule("topic-8")
@pytest.mark.parametrize(("document", "source", "key"), FILLED, ids=str)
def test_what_the_gateway_fills_has_the_key_of_its_source(
    document: dict[str, object], source: dict[str, object], key: list[str]
) -> None:
    filled = parse(document).filled_from(parse(source))
    assert filled.document()["key"] == key
    assert filled.retains
    assert parse(filled.document()).filled_from(parse(source)) == filled


@rule("topic-1")
def test_a_filled_topic_that_keeps_nothing_says_so_before_it_has_its_key() -> None:
    filled = parse({"source": PX, "retain": False}).filled_from(parse({"key": ["/k"]}))
    assert (filled.retains, filled.document()["retain"]) == (False, False)
    assert parse(filled.document()) == filled


UNFILLED = [
    ({"source": PX, "key": ["/a"]}, {"key": ["/k"]}, "/key"),
    ({"source": VIEW, "key": ["/k"]}, {"key": ["/k"]}, "/key"),
    ({"source": PX}, {}, "/key"),
    ({"source": PX, "key": ["/a"]}, {"key": ["/k"], "retain": False}, "/key"),
    ({"source": VIEW}, {}, "/source/topic"),
    ({"source": VIEW}, {"retain": True}, "/source/topic"),
    ({"source": PX, "key": ["/k"]}, {"type": "series"}, "/source/topic"),
    ({"source": PX, "key": ["/k"]}, {"type": "text"}, "/source/topic"),
]


@pytest.mark.parametrize(("document", "source", "pointer"), UNFILLED, ids=str)
def test_what_cannot_be_filled_so_is_refused(
    document: dict[str, object], source: dict[str, object], pointer: str
) -> None:
    with pytest.raises(Refused) as refused:
        parse(document).filled_from(parse(source))
    assert (refused.value.code, refused.value.pointer) == ("topic-invalid", pointer)


REFUSED: list[tuple[object, str, str | None]] = [
    ([], "topic-invalid", None),
    ("x", "topic-invalid", None),
    (None, "topic-invalid", None),
    ({"colour": 1}, "topic-invalid", "/colour"),
    ({"key": "/k"}, "key-invalid", "/key"),
    ({"key": None}, "key-invalid", "/key"),
    ({"key": [1]}, "key-invalid", "/key"),
    ({"key": ["k"]}, "key-invalid", "/key"),
    ({"key": ["/a//b"]}, "key-invalid", "/key"),
    ({"key": ["/k", "$.k"]}, "key-invalid", "/key"),
    ({"key": [f"/f{n}" for n in range(17)]}, "key-invalid", "/key"),
    ({"type": "JSON"}, "topic-invalid", "/type"),
    ({"type": ["json"]}, "topic-invalid", "/type"),
    ({"conflation": "sometimes"}, "policy-invalid", "/conflation"),
    ({"conflation": "OFF"}, "policy-invalid", "/conflation"),
    ({"conflation": None}, "policy-invalid", "/conflation"),
    ({"conflation": ["off"]}, "policy-invalid", "/conflation"),
    ({"history": {}}, "topic-invalid", "/history"),
    ({"history": 5}, "topic-invalid", "/history"),
    ({"history": {"size": 1}}, "topic-invalid", "/history"),
    ({"history": {"messages": -1}}, "topic-invalid", "/history/messages"),
    ({"history": {"messages": True}}, "topic-invalid", "/history/messages"),
    ({"history": {"messages": 1.0}}, "topic-invalid", "/history/messages"),
    ({"history": {"age": 5}}, "topic-invalid", "/history/age"),
    ({"history": {"age": "5"}}, "topic-invalid", "/history/age"),
    ({"history": {"bytes": "1XB"}}, "topic-invalid", "/history/bytes"),
    ({"history": {"bytes": None}}, "topic-invalid", "/history/bytes"),
    ({"description": 1}, "topic-invalid", "/description"),
    ({"description": "x" * 4_097}, "topic-invalid", "/description"),
    ({"options": "conflation=soon"}, "options-invalid", "/options"),
    ({"options": "oof,no_defaults"}, "options-invalid", "/options"),
    ({"options": 1}, "options-invalid", "/options"),
    ({"options": None}, "options-invalid", "/options"),
    ({"placement": "prepend"}, "topic-invalid", "/placement"),
    ({"placement": None}, "topic-invalid", "/placement"),
    ({"match": ["k"]}, "topic-invalid", "/match"),
    ({"match": []}, "topic-invalid", "/match"),
    ({"match": "os:remove"}, "topic-invalid", "/match"),
    ({"merge": "os:remove"}, "topic-invalid", "/merge"),
    ({"merge": None}, "topic-invalid", "/merge"),
    ({"merge": {}}, "topic-invalid", "/merge"),
    ({"merge": {"/px": "median"}}, "topic-invalid", "/merge"),
    ({"merge": {"px": "sum"}}, "topic-invalid", "/merge"),
    ({"merge": {"/px": 1}}, "topic-invalid", "/merge"),
    ({"merge": {"/px": "max@hi", "$.px": "min@lo"}}, "topic-invalid", "/merge"),
    ({"retain": 0}, "topic-invalid", "/retain"),
    ({"values_only": 0}, "topic-invalid", "/values_only"),
    ({"tidy_on_unsubscribe": 0.0}, "topic-invalid", "/tidy_on_unsubscribe"),
    ({"priority": "urgent"}, "topic-invalid", "/priority"),
    ({"priority": 1}, "topic-invalid", "/priority"),
    ({"expiration": "1"}, "topic-invalid", "/expiration"),
    ({"expiration": 60}, "topic-invalid", "/expiration"),
    ({"expiration": "0s"}, "topic-invalid", "/expiration"),
    ({"expiration": "999us"}, "topic-invalid", "/expiration"),
    ({"schema": 5}, "topic-invalid", "/schema"),
    ({"schema": {"type": "colour"}}, "topic-invalid", "/schema/type"),
    ({"schema": {"$ref": "https://x.invalid/s"}}, "topic-invalid", "/schema"),
    ({"type": "series", "conflation": "conflate"}, "policy-invalid", "/conflation"),
    ({"type": "series", "options": "oof,conflation=1s"}, "options-invalid", "/options"),
    ({"type": "series", "merge": {"/px": "sum"}}, "topic-invalid", "/merge"),
    ({"type": "series", "match": ["/k"]}, "topic-invalid", "/match"),
    ({"type": "series", "placement": "replace"}, "topic-invalid", "/placement"),
    ({"type": "series", "source": PX}, "topic-invalid", "/source"),
    ({"type": "text", "key": ["/k"]}, "topic-invalid", "/key"),
    ({"type": "binary", "schema": True}, "topic-invalid", "/schema"),
    ({"type": "text", "merge": {"/px": "sum"}}, "topic-invalid", "/merge"),
]


@pytest.mark.parametrize(
    ("document", "code", "pointer"), REFUSED, ids=lambda given: str(given)[:60]
)
def test_what_does_not_fit_is_refused_where_it_stands(
    document: object, code: str, pointer: str | None
) -> None:
    with pytest.raises(Refused) as refused:
        parse(document)
    assert (refused.value.code, refused.value.pointer) == (code, pointer)


def test_a_bad_text_is_refused_with_its_position() -> None:
    for document, position in (
        ({"options": "oof,conflation=soon"}, 15),
        ({"type": "series", "options": "oof,conflation=1s"}, 4),
    ):
        with pytest.raises(Refused) as refused:
            parse(document)
        assert refused.value.position == position


def test_a_series_is_off_or_unsubscribes() -> None:
    for policy in ("off", "unsubscribe"):
        assert parse({"type": "series", "conflation": policy}).policy == policy
    for policy in ("conflate", "always"):
        with pytest.raises(Refused, match="off or unsubscribe") as refused:
            parse({"type": "series", "conflation": policy})
        assert refused.value.code == "policy-invalid"


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
PATHS = st.sampled_from(["/a", "/b/c", "$.d[0]", "$['e f']", "/@type", "$[1]"])
DURATIONS = st.tuples(st.integers(1, 3_600), st.sampled_from(["ms", "s", "S"])).map(
    lambda parts: f"{parts[0]}{parts[1]}"
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "key": st.lists(PATHS, unique=True, max_size=4),
        "type": st.just("json"),
        "conflation": st.sampled_from(["off", "conflate", "always", "unsubscribe"]),
        "options": st.sampled_from(["", "conflation=1s", "oof, timestamp"]),
        "placement": st.sampled_from(["append", "replace"]),
        "match": st.none() | st.lists(PATHS, unique=True, min_size=1, max_size=4),
        "merge": st.sampled_from(["replace", {"/q": "sum", "/b": "max@hi"}]),
        "retain": st.none() | st.booleans(),
        "values_only": st.booleans(),
        "priority": st.sampled_from(["low", "default", "high"]),
        "expiration": st.none() | DURATIONS,
        "schema": st.none() | st.booleans() | st.just({"type": "object"}),
        "tidy_on_unsubscribe": st.booleans(),
        "history": st.none()
        | st.fixed_dictionaries(
            {"messages": st.integers(0, 10**9)},
            optional={"age": DURATIONS, "bytes": st.sampled_from(["1KiB", "8mib", "5B"])},
        ),
        "source": st.none()
        | st.fixed_dictionaries(
            {
                "topic": NAMES,
                "interval": st.integers(100, 3_600_000).map(lambda ms: f"{ms}ms"),
            },
            optional={
                "engine": st.just("gateway"),
                "filter": st.none() | st.just("/a = 1 AND /b LIKE 'x'"),
            },
        ),
        "description": st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    },
)


@rule("topic-2")
@given(DOCUMENTS)
@examples(15)
def test_a_document_shown_and_read_again_is_the_same(document: dict[str, Any]) -> None:
    read = parse(document)
    shown = parse(read.document())
    assert shown == read
    assert shown.etag("e") == read.etag("e")


def test_the_entity_tag_changes_with_the_document_and_with_the_epoch() -> None:
    plain, described = parse({}), parse({"description": "d"})
    assert len({plain.etag("e1"), plain.etag("e2"), described.etag("e1")}) == 3
    assert plain.etag("e1").startswith('"')


def test_the_engine_gets_the_history_or_the_default() -> None:
    assert parse({}).definition(MESSAGES_MAX, BYTES_MAX).history == History(77, 1 << 20, None)
    given = {"age": "1d", "bytes": "2KiB"}
    kept = parse({"history": given}).definition(MESSAGES_MAX, BYTES_MAX).history
    assert kept == History(77, 2_048, DAY // MILLISECOND)
    assert parse({"history": {"messages": 0}}).definition(
        MESSAGES_MAX, BYTES_MAX
    ).history == History(0, BYTES_MAX)
