"""Which definitions the definitions of other topics allow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.place import parsed
from tests.support.rules import rule
from tidegate.app.definitions.graph import (
    check_identity,
    check_source,
    is_source,
    resolved,
    sources_first,
    sources_of,
)
from tidegate.app.refusals import Refused
from tidegate.keys.spec import KeySpec


def filled(source: str, **more: Any) -> dict[str, Any]:
    return {"source": {"topic": source, "interval": "1s", **more}}


TOPICS = {
    "px": parsed(key=["/k"]),
    "slow": parsed(key=["/k"], **filled("px")),
    "spark": parsed(key=["/other"], **filled("slow", engine="spark")),
    "plain": parsed(),
}


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (filled("spark"), "source-cycle"),
        (filled("px"), "source-cycle"),
        (filled("none"), "topic-unknown"),
        (filled("plain"), "topic-invalid"),
    ],
)
def test_a_source_that_cannot_be_one(document: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as refused:
        resolved("px", parsed(**document), TOPICS.get)
    assert refused.value.code == code


def test_sources_come_before_what_is_filled_from_them() -> None:
    topics = {**TOPICS, "again": parsed(**filled("slow")), "alone": parsed(**filled("none"))}
    topics |= {"one": parsed(**filled("other")), "other": parsed(**filled("one"))}
    assert sources_of("again", topics.get) == ["slow", "px"]
    assert sources_of("spark", topics.get) == [], "the gateway does not fill it"
    assert sources_of("one", topics.get) == ["other", "one"], "a cycle ends"
    names = ["again", "alone", "slow", "px", "unknown"]
    assert sources_first(names, topics.get) == ["px", "unknown", "alone", "slow", "again"]


def test_a_topic_that_the_gateway_fills_has_the_key_of_its_source() -> None:
    assert resolved("new", parsed(**filled("slow")), TOPICS.get).key_spec == TOPICS["px"].key_spec
    assert resolved("new", TOPICS["px"], TOPICS.get) is TOPICS["px"]


@rule("pipeline-12")
def test_a_stream_of_the_pipeline_may_have_a_key_of_its_own_and_a_view_that_of_its_grouping() -> (
    None
):
    by_spark: dict[str, Any] = {"source": {"topic": "slow", "interval": "1s", "engine": "spark"}}
    assert resolved("new", parsed(key=["/other"], **by_spark), TOPICS.get).key_spec == KeySpec.of(
        ["/other"]
    )
    assert resolved("new", parsed(**by_spark), TOPICS.get).key_spec == TOPICS["px"].key_spec
    by_spark["source"] |= {"grouping": ["/g"], "projection": ["COUNT(/k) AS /n"]}
    assert resolved("new", parsed(**by_spark), TOPICS.get).key_spec == KeySpec.of(["/g"])
    for wrong in (
        parsed(key=["/k"], **by_spark),
        parsed(source={**by_spark["source"], "topic": "plain"}),
        parsed(source={"topic": "plain", "interval": "1s", "engine": "spark"}),
    ):
        with pytest.raises(Refused) as refused:
            resolved("new", wrong, TOPICS.get)
        assert refused.value.code == "topic-invalid"


def test_who_is_a_source() -> None:
    assert [name for name in TOPICS if is_source(name, TOPICS.values())] == ["px", "slow"]


@rule("topic-3")
@pytest.mark.parametrize(
    ("has_messages", "is_used", "code"),
    [(True, True, "topic-conflict"), (False, True, "topic-in-use"), (False, False, None)],
)
def test_a_key_stays_with_messages_and_while_others_rely_on_it(
    has_messages: bool, is_used: bool, code: str | None
) -> None:
    before, after = TOPICS["px"], parsed(key=["/o"])
    check_identity(before, before, has_messages=has_messages, is_used=is_used)
    if code is None:
        check_identity(before, after, has_messages=has_messages, is_used=is_used)
        return
    with pytest.raises(Refused) as refused:
        check_identity(before, after, has_messages=has_messages, is_used=is_used)
    assert (refused.value.code, refused.value.pointer) == (code, "/key")


@rule("topic-3")
def test_messages_that_no_source_has_brought_stand_against_one() -> None:
    """Who is filled already may be filled from another, and the pipeline removes none."""
    plain, by_spark = TOPICS["px"], parsed(key=["/k"], **filled("px", engine="spark"))
    view = parsed(key=["/k"], **filled("px"))
    for before, after, has_messages in (
        (plain, view, False), (view, view, True), (by_spark, view, True), (plain, by_spark, True),
        (view, plain, True),
    ):  # fmt: skip
        check_source(before, after, has_messages=has_messages)
    with pytest.raises(Refused) as refused:
        check_source(plain, view, has_messages=True)
    assert (refused.value.code, refused.value.pointer) == ("topic-conflict", "/source")
