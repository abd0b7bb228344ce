"""The JSON document of a topic: what each field takes, and what is refused where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.problems import Problem
from app.settings import Settings
from app.topic_document import Source, TopicDocument
from conflation.definition import QueuePolicy
from conflation.duration import DAY, MILLISECOND, SECOND
from conflation.log import History
from keys.spec import KeySpec
from tests.support.profiles import examples

SOURCE = {"topic": "px", "interval": "1s", "engine": "spark"}


def parse(document: object) -> TopicDocument:
    return TopicDocument.parse(json.dumps(document).encode())


def test_an_empty_document_is_a_plain_topic_that_conflates() -> None:
    assert parse({}) == TopicDocument(KeySpec(), QueuePolicy.CONFLATE, None, None, "")


def test_every_field_is_read() -> None:
    document = parse(
        {
            "key": ["/k", "$.a.b"],
            "type": "json",
            "conflation": "off",
            "history": {"messages": 7, "age": "1h", "bytes": "1MiB"},
            "source": SOURCE,
            "description": "prices",
        }
    )
    assert document.key_spec == KeySpec.of(["/k", "/a/b"])
    assert document.policy is QueuePolicy.OFF
    assert document.history == {"messages": 7, "age": "1h", "bytes": "1MiB"}
    assert document.source == Source("px", SECOND, "spark")
    assert document.description == "prices"


def test_fields_that_come_later_are_taken_with_their_default() -> None:
    later: dict[str, object] = {
        "options": "", "placement": "append", "match": None, "merge": "replace", "retain": None,
        "values_only": False, "priority": "default", "expiration": None, "schema": None,
        "tidy_on_unsubscribe": False,
    }  # fmt: skip
    assert parse(later) == parse({})


REFUSED: list[tuple[object, str, str | None]] = [
    ([], "topic-invalid", None),
    ("x", "topic-invalid", None),
    (None, "topic-invalid", None),
    ({"colour": 1}, "topic-invalid", None),
    ({"key": "/k"}, "key-invalid", "/key"),
    ({"key": None}, "key-invalid", "/key"),
    ({"key": [1]}, "key-invalid", "/key"),
    ({"key": ["k"]}, "key-invalid", "/key"),
    ({"key": ["/a//b"]}, "key-invalid", "/key"),
    ({"key": ["/k", "$.k"]}, "key-invalid", "/key"),
    ({"key": [f"/f{n}" for n in range(17)]}, "key-invalid", "/key"),
    ({"type": "text"}, "topic-invalid", "/type"),
    ({"type": "JSON"}, "topic-invalid", "/type"),
    ({"type": ["json"]}, "topic-invalid", "/type"),
    ({"conflation": "always"}, "policy-invalid", "/conflation"),
    ({"conflation": "unsubscribe"}, "policy-invalid", "/conflation"),
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
    ({"source": "px"}, "topic-invalid", "/source"),
    ({"source": {**SOURCE, "speed": 1}}, "topic-invalid", "/source"),
    ({"source": {**SOURCE, "filter": "/a = 1"}}, "topic-invalid", "/source/filter"),
    ({"source": {**SOURCE, "engine": "gateway"}}, "topic-invalid", "/source/engine"),
    ({"source": {"topic": "px", "interval": "1s"}}, "topic-invalid", "/source/engine"),
    ({"source": {**SOURCE, "engine": "flink"}}, "topic-invalid", "/source/engine"),
    ({"source": {**SOURCE, "topic": 1}}, "topic-invalid", "/source/topic"),
    ({"source": {**SOURCE, "topic": "../x"}}, "topic-invalid", "/source/topic"),
    ({"source": {**SOURCE, "interval": "99ms"}}, "topic-invalid", "/source/interval"),
    ({"source": {**SOURCE, "interval": "2h"}}, "topic-invalid", "/source/interval"),
    ({"source": {"topic": "px", "engine": "spark"}}, "topic-invalid", "/source/interval"),
    ({"description": 1}, "topic-invalid", "/description"),
    ({"description": "x" * 4_097}, "topic-invalid", "/description"),
    ({"options": "conflation=1s"}, "topic-invalid", "/options"),
    ({"placement": "replace"}, "topic-invalid", "/placement"),
    ({"match": ["/k"]}, "topic-invalid", "/match"),
    ({"merge": {"/px": "sum"}}, "topic-invalid", "/merge"),
    ({"retain": False}, "topic-invalid", "/retain"),
    ({"values_only": True}, "topic-invalid", "/values_only"),
    ({"values_only": 0}, "topic-invalid", "/values_only"),
    ({"tidy_on_unsubscribe": 0.0}, "topic-invalid", "/tidy_on_unsubscribe"),
    ({"priority": "high"}, "topic-invalid", "/priority"),
    ({"expiration": "1h"}, "topic-invalid", "/expiration"),
    ({"schema": {}}, "topic-invalid", "/schema"),
]


@pytest.mark.parametrize(
    ("document", "code", "pointer"), REFUSED, ids=lambda given: str(given)[:60]
)
def test_what_does_not_fit_is_refused_where_it_stands(
    document: object, code: str, pointer: str | None
) -> None:
    with pytest.raises(Problem) as refused:
        parse(document)
    assert (refused.value.code, refused.value.pointer) == (code, pointer)


@pytest.mark.parametrize("field", ["options", "schema", "conflation", "type"])
def test_what_comes_later_is_refused_as_not_available_yet(field: str) -> None:
    given = {"options": "x", "schema": {}, "conflation": "always", "type": "series"}[field]
    with pytest.raises(Problem, match="not available yet"):
        parse({field: given})


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
        "conflation": st.sampled_from(["off", "conflate"]),
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
                "engine": st.just("spark"),
            }
        ),
        "description": st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    },
)


@given(DOCUMENTS)
@examples(100, nightly=5_000)
def test_a_document_shown_and_read_again_is_the_same(document: dict[str, Any]) -> None:
    read = parse(document)
    shown = parse(read.document())
    assert shown == read
    assert shown.etag("e") == read.etag("e")


def test_the_entity_tag_changes_with_the_document_and_with_the_epoch() -> None:
    plain, described = parse({}), parse({"description": "d"})
    assert len({plain.etag("e1"), plain.etag("e2"), described.etag("e1")}) == 3
    assert plain.etag("e1").startswith('"')


def test_the_engine_gets_the_history_or_the_default_of_the_settings() -> None:
    settings = Settings(journal_messages_max=77)
    assert parse({}).definition(settings).history == History(77, None, None)
    given = {"age": "1d", "bytes": "2KiB"}
    kept = parse({"history": given}).definition(settings).history
    assert kept == History(77, 2_048, DAY // MILLISECOND)
    assert parse({"history": {"messages": 0}}).definition(settings).history == History(0)
