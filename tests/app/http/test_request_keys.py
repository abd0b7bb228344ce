"""What makes a request like an earlier one, and how many are known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tidegate.app.http.known_requests import (
    KEY_BYTES_MAX,
    PUBLISH,
    SUBSCRIBE,
    Latest,
    header_key,
    routing_key,
)

KINDS = PUBLISH, SUBSCRIBE


def scope_of(query: str = "", method: str = "GET", path: bytes | None = None) -> dict[str, Any]:
    path = b"/v1/topics/px/subscribe" if path is None else path
    return {
        "type": "http", "method": method, "raw_path": path, "query_string": query.encode(),
        "headers": [(b"accept", b"*/*")], "scheme": "http",
    }  # fmt: skip


def test_the_value_used_longest_ago_makes_room() -> None:
    latest = Latest[str](2)
    for name in ("a", "b"):
        latest.note((name,), name)
    assert latest.find(("a",)) == "a"
    latest.note(("c",), "c")
    assert len(latest) == 2
    assert [latest.find((name,)) for name in "abc"] == ["a", None, "c"]


def test_a_text_that_is_too_long_is_not_kept() -> None:
    latest = Latest[str]()
    latest.note(("x" * (KEY_BYTES_MAX + 1),), "")
    assert len(latest) == 0


@pytest.mark.parametrize(
    "key", [routing_key, partial(header_key, kinds=KINDS)], ids=["routing", "header"]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", b"/v1/topics/px/subscribe"),
        ("HEAD", b"/v1/topics/px/subscribe"),
        ("GET", b"/v1/topics/px/sow"),
        ("GET", b"/v1/topics/px/messages"),
        ("POST", b"/v1/topics/px/sow/messages"),
        ("POST", b"/v1/other/px/messages"),
        ("POST", b""),
    ],
)
def test_only_publishing_and_subscribing_are_known(
    key: Callable[[dict[str, Any]], Any], method: str, path: bytes
) -> None:
    assert key(scope_of("", method, path)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"method": "POST", "raw_path": b"/v1/topics/px/messages"},
        {"raw_path": b"/v1/topics/py/subscribe"},
        {"query_string": b"command=sow"},
        {"headers": [(b"accept", b"text/event-stream")]},
        {"headers": [(b"accept", b"*/*"), (b"origin", b"x")]},
        {"scheme": "https"},
    ],
    ids=str,
)
def test_all_of_a_header_counts_but_the_length(change: dict[str, Any]) -> None:
    known = header_key(scope_of(), KINDS)
    assert header_key({**scope_of(), **change}, KINDS) != known
    length = [(b"accept", b"*/*"), (b"content-length", b"7")]
    assert header_key({**scope_of(), "headers": length}, KINDS) == known
