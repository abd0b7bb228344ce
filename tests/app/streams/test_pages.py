"""Pages: what several gateways list is one list by id."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.app.calls import Reply
from tidegate.app.streams.view import Page


def page(*ids: str, more: bool = False) -> Page:
    return Page([{"session": each} for each in ids], more)


def reply(*ids: str, following: str | None = None, status: int = 200) -> Reply:
    document = {"sessions": [{"session": each} for each in ids], "next": following}
    return Reply(status, [], msgspec.json.encode(document))


CASES = [
    (page("a", "c"), {"g": reply("b", "d")}, ["a", "b", "c"], True, []),
    (page("a"), {"g": reply("b"), "h": reply()}, ["a", "b"], False, []),
    (page("a"), {"g": reply("a", "b")}, ["a", "b"], False, []),
    (page("a", more=True), {}, ["a"], True, []),
    (page(), {"g": reply("b", following="/v1/sessions?after=b")}, ["b"], True, []),
    (
        page("a"),
        {"g": None, "h": reply(status=503), "i": reply("z")},
        ["a", "z"],
        False,
        ["g", "h"],
    ),
]


@pytest.mark.parametrize(("own", "replies", "ids", "more", "missing"), CASES)
def test_pages_are_joined(
    own: Page, replies: dict[str, Reply | None], ids: list[str], more: bool, missing: list[str]
) -> None:
    joined = own.joined(replies, 3)
    assert [view["session"] for view in joined.sessions] == ids
    assert (joined.has_more, joined.missing) == (more, missing)
