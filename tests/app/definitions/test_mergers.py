"""Registered mergers and matchers: found at start, their failures counted."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.app.definitions.mergers import Mergers, MergersInvalid
from tidegate.keys.merging import Verdict

NAME = "tests.app.definitions.test_mergers:larger"


def larger(current: Any, new: Any) -> Any:
    if new["v"] == current["v"]:
        return Verdict.KEEP_CURRENT
    return {"v": max(current["v"], new["v"])}


NOT_CALLABLE = 5


def test_a_merger_answers_a_value_or_a_verdict() -> None:
    merger = Mergers.load([NAME]).merger(NAME)
    assert merger is not None
    assert str(merger) == NAME
    assert merger.merged(b'{"v": 1}', b'{"v": 2}') == b'{"v":2}'
    assert merger.merged(b'{"v": 1}', b'{"v":1}') == b'{"v": 1}'


@rule("merge-9")
def test_failures_are_counted_and_logged_the_first_time(caplog: pytest.LogCaptureFixture) -> None:
    mergers = Mergers({"m:f": larger, "m:g": lambda current, new: current["side"]})
    merger, matcher = mergers.merger("m:f"), mergers.matcher("m:g")
    assert merger is not None
    assert matcher is not None
    with caplog.at_level(logging.ERROR, "tidegate.mergers"):
        for _ in range(3):
            assert merger.merged(b"{}", b"{}") is None
        assert matcher.matches(b"{}", b"{}") is False
    assert mergers.failures == {"m:f": 3, "m:g": 1}
    assert len(caplog.records) == 2


def test_only_what_is_registered_is_known() -> None:
    mergers = Mergers.load([NAME])
    assert mergers.names == (NAME,)
    assert mergers.merger("os:remove") is None
    assert mergers.matcher("os:remove") is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no.such.module:f", "cannot be imported"),
        ("tests.app.definitions.test_mergers:nothing", "cannot be imported"),
        ("tests.app.definitions.test_mergers:NOT_CALLABLE", "is not a function"),
    ],
)
def test_what_cannot_be_imported_is_one_sentence(name: str, reason: str) -> None:
    with pytest.raises(MergersInvalid, match=reason) as refused:
        Mergers.load([name])
    assert "\n" not in str(refused.value)
    assert name in str(refused.value)
