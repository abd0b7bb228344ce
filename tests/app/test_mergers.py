"""Registered mergers and matchers: found at start, held so that they can hurt nobody."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from app.mergers import Mergers
from app.settings import SettingsInvalid
from conflation.merging import Verdict

NAME = "tests.app.test_mergers:larger"


def larger(current: Any, new: Any) -> Any:
    if new["v"] == current["v"]:
        return Verdict.KEEP_CURRENT
    return {"v": max(current["v"], new["v"])}


def surrogate(current: Any, new: Any) -> Any:
    return "\ud800"


def deep(current: Any, new: Any) -> Any:
    value: list[Any] = []
    for _ in range(100):
        value = [value]
    return value


def an_object(current: Any, new: Any) -> Any:
    return object()


def endless(current: Any, new: Any) -> Any:
    return endless(current, new)


NOT_CALLABLE = 5


def test_a_merger_answers_a_value_or_a_verdict() -> None:
    merger = Mergers.load([NAME]).merger(NAME)
    assert merger is not None
    assert str(merger) == NAME
    assert merger.function({"v": 1}, {"v": 2}) == {"v": 2}
    assert merger.function({"v": 1}, {"v": 1}) is Verdict.KEEP_CURRENT


@pytest.mark.parametrize("function", [larger, surrogate, deep, an_object, endless])
def test_one_that_fails_counts_as_no_conflation(
    function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule 189."""
    mergers = Mergers({"m:f": function})
    merger = mergers.merger("m:f")
    assert merger is not None
    with caplog.at_level(logging.ERROR, "tidegate.mergers"):
        for _ in range(3):
            assert merger.function({}, {}) is Verdict.NO_CONFLATION
    assert mergers.failures == {"m:f": 3}
    assert len(caplog.records) == 1


def test_a_matcher_that_fails_matches_nothing() -> None:
    mergers = Mergers({"m:f": lambda current, new: current["side"] == new["side"]})
    matcher = mergers.matcher("m:f")
    assert matcher is not None
    assert matcher.function({"side": 1}, {"side": 1}) is True
    assert matcher.function({"side": 1}, {"side": 2}) is False
    assert matcher.function({}, 7) is False
    assert mergers.failures == {"m:f": 1}


def test_only_what_is_registered_is_known() -> None:
    mergers = Mergers.load([NAME])
    assert mergers.names == (NAME,)
    assert mergers.merger("os:remove") is None
    assert mergers.matcher("os:remove") is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no.such.module:f", "cannot be imported"),
        ("tests.app.test_mergers:nothing", "cannot be imported"),
        ("tests.app.test_mergers:NOT_CALLABLE", "is not a function"),
    ],
)
def test_what_cannot_be_imported_is_one_sentence(name: str, reason: str) -> None:
    with pytest.raises(SettingsInvalid, match=reason) as refused:
        Mergers.load([name])
    assert "\n" not in str(refused.value)
    assert name in str(refused.value)
