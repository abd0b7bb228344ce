"""Bodies of requests about sessions: what they may contain, and the position of a mistake."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.app.names import TopicPattern
from tidegate.app.refusals import Refused
from tidegate.app.streams.documents import (
    PARSED_AT_ONCE,
    Tuning,
    change_of,
    opening_of,
    target_of,
    tuning_of,
)
from tidegate.app.streams.encoding import Format
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.steps import finished
from tidegate.keys.errors import KeysError

MOST = QueueLimits(10_000, 8 << 20)
CHARACTERS_MAX = 100


def opening(document: object) -> Any:
    return finished(opening_of(json.dumps(document).encode(), MOST, CHARACTERS_MAX))


def test_nothing_said_is_what_the_gateway_has() -> None:
    for body in (b"", b"{}", b'{"subscriptions":[]}'):
        found = finished(opening_of(body, MOST, CHARACTERS_MAX))
        assert (found.limits, found.conflated, found.subscriptions) == (MOST, True, ())


def test_many_subscriptions_are_parsed_in_steps() -> None:
    document = {"subscriptions": [{"topic": "px"}] * (3 * PARSED_AT_ONCE)}
    steps = opening_of(json.dumps(document).encode(), MOST, CHARACTERS_MAX)
    assert len(list(steps)) == 3


def test_limits_are_numbers_or_sizes() -> None:
    for text in ("1MiB", 1 << 20):
        found = opening({"limits": {"messages": 5, "bytes": text, "upper": 90, "lower": 90}})
        assert found.limits == QueueLimits(5, 1 << 20, 90, 90)


LIMITS = [
    ({"messages": 10_001}, "/limits/messages"),
    ({"messages": 0}, "/limits/messages"),
    ({"messages": True}, "/limits/messages"),
    ({"messages": 1.0}, "/limits/messages"),
    ({"messages": "5"}, "/limits/messages"),
    ({"messages": None}, "/limits/messages"),
    ({"bytes": "9MiB"}, "/limits/bytes"),
    ({"bytes": "8 MiB"}, "/limits/bytes"),
    ({"bytes": "0B"}, "/limits/bytes"),
    ({"bytes": -1}, "/limits/bytes"),
    ({"upper": 101}, "/limits/upper"),
    ({"lower": 0}, "/limits/lower"),
    ({"lower": 81}, "/limits/lower"),
    ({"zzq": 1}, "/limits/zzq"),
    (5, "/limits"),
]


@pytest.mark.parametrize(("limits", "pointer"), LIMITS)
def test_limits_that_are_none_or_more_than_the_gateways(limits: object, pointer: str) -> None:
    with pytest.raises(Refused) as refused:
        opening({"limits": limits})
    assert (refused.value.code, refused.value.pointer) == ("options-invalid", pointer)


def test_bytes_are_refused_in_the_words_in_which_they_are_taken() -> None:
    with pytest.raises(Refused, match='from 1 to 8388608, or a size such as "1MiB"'):
        opening({"limits": {"bytes": "9MiB"}})
    with pytest.raises(Refused, match=r"from 1 to 10000\."):
        opening({"limits": {"messages": 0}})


SUBSCRIPTIONS = [
    ({}, "topic-invalid", "/subscriptions/0/topic"),
    ({"topic": 5}, "topic-invalid", "/subscriptions/0/topic"),
    ({"topic": "/zzq"}, "topic-invalid", "/subscriptions/0"),
    ({"topic": "px", "options": 5}, "options-invalid", "/subscriptions/0/options"),
    ({"topic": "px", "options": "oof=zzq"}, "options-invalid", "/subscriptions/0"),
    ({"topic": "px", "filter": "x" * 101}, "filter-invalid", "/subscriptions/0/filter"),
    ({"topic": "px", "format": "zzq"}, "options-invalid", "/subscriptions/0"),
    ({"topic": "px", "bookmark": "x"}, "options-invalid", "/subscriptions/0/bookmark"),
    ("px", "options-invalid", "/subscriptions/0"),
]


@pytest.mark.parametrize(("document", "code", "pointer"), SUBSCRIPTIONS)
def test_a_subscription_that_is_none(document: object, code: str, pointer: str) -> None:
    with pytest.raises(Refused) as refused:
        opening({"subscriptions": [document]})
    assert (refused.value.code, refused.value.pointer) == (code, pointer)
    assert "zzq" not in refused.value.detail


BODIES: list[Any] = [{"zzq": 1}, [], {"conflated": 1}, {"conflated": None}, {"subscriptions": {}}]


@pytest.mark.parametrize("document", BODIES)
def test_a_body_that_is_none(document: object) -> None:
    with pytest.raises(Refused) as refused:
        opening(document)
    assert refused.value.code == "options-invalid"


@pytest.mark.parametrize("body", [b"{", b'{"a":NaN}', b"\xff", b'{"conflated":true}x'])
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        finished(opening_of(body, MOST, CHARACTERS_MAX))
    assert refused.value.position is not None


def test_a_target_is_a_topic_or_a_pattern() -> None:
    body = b'{"topic":"px.>","options":"conflation=1s","command":"sow","format":"value"}'
    target = target_of(body, CHARACTERS_MAX)
    assert isinstance(target.topic, TopicPattern)
    assert (target.request.command, target.request.form, target.request.many) == (
        "sow",
        Format.VALUE,
        True,
    )
    assert target_of(b'{"topic":"px"}', CHARACTERS_MAX).topic == "px"


def test_tuning_leaves_what_it_does_not_name() -> None:
    now = Tuning(QueueLimits(5, 1_000, 70, 20), conflated=False)
    assert tuning_of(b'{"limits":{"messages":7}}', now, MOST) == Tuning(
        QueueLimits(7, 1_000, 70, 20), conflated=False
    )
    assert tuning_of(b'{"conflated":true}', now, MOST) == Tuning(now.limits, conflated=True)
    for body in (b"", b"{}", b'{"limits":{"lower":71}}'):
        with pytest.raises(Refused):
            tuning_of(body, now, MOST)


def test_a_change_says_what_is_to_be_otherwise() -> None:
    change = change_of(b'{"conflation":"auto","filter":"","paused":false}', CHARACTERS_MAX)
    assert change.options is not None
    assert (change.options.conflation, change.options.is_change) == ("auto", True)
    assert (change.filter_text, change.order_text, change.paused) == ("", None, False)
    assert change_of(b'{"options":"pause"}', CHARACTERS_MAX).paused is True
    assert change_of(b'{"options":"resume"}', CHARACTERS_MAX).paused is False
    assert change_of(b'{"options":"oof"}', CHARACTERS_MAX).paused is None


@rule("change-4")
def test_null_is_what_a_subscription_has_that_does_not_say_it() -> None:
    body = b'{"options":null,"filter":null,"order_by":null,"paused":null}'
    change = change_of(body, CHARACTERS_MAX)
    assert change.options is not None
    assert change.options.replace
    assert (change.filter_text, change.order_text, change.paused) == ("", "", False)


@rule("change-4")
def test_null_is_what_the_gateway_has() -> None:
    now = Tuning(QueueLimits(5, 1_000, 70, 20), conflated=False)
    assert tuning_of(b'{"limits":null}', now, MOST) == Tuning(MOST, conflated=False)
    assert tuning_of(b'{"conflated":null}', now, MOST) == Tuning(now.limits, conflated=True)
    one = tuning_of(b'{"limits":{"messages":null,"lower":30}}', now, MOST)
    assert one.limits == QueueLimits(MOST.messages_max, 1_000, 70, 30)
    all_of_them = b'{"limits":{"messages":null,"bytes":null,"upper":null,"lower":null}}'
    assert tuning_of(all_of_them, now, MOST).limits == MOST


NO_CHANGE = [
    {},
    {"zzq": 1},
    {"conflation": "1s", "options": "oof"},
    {"conflation": "1s,oof"},
    {"conflation": 5},
    {"options": "pause,resume"},
    {"options": "pause", "paused": True},
    {"paused": 1},
    {"options": "bookmark=now"},
    {"conflation": None},
    {"conflation": "1s", "options": None},
]


@pytest.mark.parametrize("document", NO_CHANGE)
def test_a_change_that_is_none(document: object) -> None:
    with pytest.raises((Refused, KeysError)):
        change_of(json.dumps(document).encode(), CHARACTERS_MAX)
