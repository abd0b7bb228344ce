"""Grants: what is taken for one, and what several give together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.app.access.grants import (
    READ,
    WRITE,
    Grant,
    GrantInvalid,
    Grants,
    named_values,
    parse_grants,
)
from tidegate.app.access.policy import Policy, PolicyInvalid


def grants(*documents: dict[str, Any]) -> Grants:
    return Grants(parse_grants([{"can": ["read"], **document} for document in documents]))


@rule("access-3")
def test_filters_add_up_by_or_and_fields_by_union() -> None:
    both = grants(
        {"topics": "px.>", "filter": "/desk = 'a'", "select": "[-/,+/id,+/px]"},
        {"topics": "px.eu", "filter": "/desk = 'b'", "select": "[-/,+/id,+/qty]"},
    )
    found = both.reading("px.eu")
    assert found is not None
    assert str(found.filter) == "/desk = 'a' OR /desk = 'b'"
    assert str(found.select) == "[-/,+/id,+/px,+/qty]"
    alone = both.reading("px.us")
    assert alone is not None
    assert (str(alone.filter), str(alone.select)) == ("/desk = 'a'", "[-/,+/id,+/px]")


@rule("access-3")
def test_a_grant_without_filter_or_select_is_the_whole() -> None:
    narrow = {"topics": "px.>", "filter": "/desk = 'a'", "select": "[-/,+/id]"}
    found = grants(narrow, {"topics": "px.eu"}).reading("px.eu")
    assert found is not None
    assert found.is_whole
    found = grants(narrow, {"topics": ">", "filter": "/x = 1"}).reading("px.eu")
    assert found is not None
    assert found.select is None
    assert str(found.filter) == "/desk = 'a' OR /x = 1"
    assert grants(narrow).reading("other") is None


def test_own_topics_are_granted_by_name_only() -> None:
    assert not grants({"topics": ">"}).may(READ, "tidegate.sessions")
    assert grants({"topics": "tidegate.>"}).may(READ, "tidegate.sessions")
    assert not grants({"topics": "tidegate.>"}).may(WRITE, "tidegate.sessions")


def test_a_prefix_is_no_pattern() -> None:
    held = grants({"topics": "px.*"})
    assert held.may(READ, "px.eu")
    assert not any(held.may(READ, name) for name in ("px", "pxx.eu", "px.eu.a", "px.", "apx.eu"))


@pytest.mark.parametrize(
    "document",
    [
        None,
        "read px",
        {},
        {"topics": "px"},
        {"can": ["read"]},
        {"topics": "px", "can": []},
        {"topics": "px", "can": "read"},
        {"topics": "px", "can": ["READ"]},
        {"topics": "px", "can": [["read"]]},
        {"topics": ["px"], "can": ["read"]},
        {"topics": "", "can": ["read"]},
        {"topics": "a>", "can": ["read"]},
        {"topics": "px", "can": ["read"], "filter": ""},
        {"topics": "px", "can": ["read"], "filter": "/a ="},
        {"topics": "px", "can": ["read"], "filter": 7},
        {"topics": "px", "can": ["write"], "filter": "/a = 1"},
        {"topics": "px", "can": ["read"], "select": "[-/]"},
        {"topics": "px", "can": ["read"], "select": "[+/a]"},
        {"topics": "px", "can": ["read"], "select": "[-/,+/a,-/a/b]"},
        {"topics": "px", "can": ["read"], "select": "[-/a,+/b]"},
        {"topics": "px", "can": ["read"], "selects": "[-/,+/a]"},
    ],
)
def test_what_is_no_grant_grants_nothing(document: object) -> None:
    with pytest.raises(GrantInvalid):
        Grant.parse(document)


def test_a_grant_reads_as_it_was_written() -> None:
    document = {
        "topics": "px.>",
        "can": ["read", "write"],
        "filter": "/a = 1",
        "select": "[-/,+/a]",
    }
    assert Grant.parse(document).document() == document
    assert Grant.parse_text("read,write  px.>").document() == {
        "topics": "px.>",
        "can": ["read", "write"],
    }
    for text in ("", "read", "px read", "read,, px"):
        with pytest.raises(GrantInvalid):
            Grant.parse_text(text)
    with pytest.raises(GrantInvalid, match="read,write prices"):  # told as a wrong topic before
        Grant.parse_text("read write px")


def test_the_values_of_a_claim() -> None:
    claims = {"groups": ["a", 7, "b"], "role": "c", "realm_access": {"roles": ["d"]}}
    assert named_values(claims, "groups") == ("a", "b")
    assert named_values(claims, "role") == ("c",)
    assert named_values(claims, "/realm_access/roles") == ("d",)
    assert named_values(claims, "/role/roles") == named_values(claims, "none") == ()


POLICY = b"""
claim = "groups"
revoked = ["mallory"]
[[grants.traders]]
topics = "prices.>"
can = ["read", "write"]
filter = "/desk = 'a'"
"""


def test_a_policy_gives_grants_to_values() -> None:
    policy = Policy.parse(POLICY)
    assert policy.claim == "groups"
    assert [str(it.filter) for it in policy.grants["traders"]] == ["/desk = 'a'"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"claim =", "TOML"),
        (b"\xff", "TOML"),
        (b"revoked = " + b"[" * 2_000, "TOML"),
        (b"claims = 'x'", "unknown field"),
        (b"claim = 'groups'", "claim"),
        (b"[[grants.a]]\ntopics = 'px'\ncan = ['read']", "claim"),
        (b"claim = 'g'\n[[grants.a]]\ntopics = 'px'\ncan = ['all']", r"grants\.a: grant 1"),
        (b"claim = 'g'\n[grants]\na = 'read px'", r"grants\.a"),
        (b"claim = 'g'\ngrants = 7", "grants"),
        (b"revoked = 'x'", "revoked"),
        (b"revoked = ['x', '']", "empty"),
    ],
)
def test_a_policy_that_is_not_understood_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(PolicyInvalid, match=said):
        Policy.parse(text)
