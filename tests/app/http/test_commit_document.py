"""A commit's document is read strictly; every refusal points at its place (also bad requests)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate.app.http.publish_request import STAGES_MAX, Commit, commit_of
from tidegate.app.refusals import Refused
from tidegate.app.stores.store import Producer

SOUND: dict[str, Any] = {"producer": "a b", "run": 0, "sequence": 2**63 - 1, "stages": ["s/1", "~"]}


def test_a_commit_names_its_producer_and_its_stages_in_order() -> None:
    assert commit_of(json.dumps(SOUND).encode()) == Commit(
        Producer("a b", 2**63 - 1, run=0), ("s/1", "~")
    )
    assert commit_of(json.dumps(SOUND | {"epoch": "e1"}).encode()).epoch == "e1"


def test_as_many_stages_as_a_large_batch_has() -> None:
    names = [f"{at:0255}" for at in range(STAGES_MAX)]
    assert commit_of(json.dumps(SOUND | {"stages": names}).encode()).stages == tuple(names)


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"run": 1.0}, "/run"),
        ({"sequence": 2**63}, "/sequence"),
        ({"sequence": False}, "/sequence"),
        ({"producer": "a\t"}, "/producer"),
        ({"producer": "a "}, "/producer"),
        ({"stages": ["a", "b", "a"]}, "/stages/2"),
        ({"stages": {"a": 1}}, "/stages"),
        ({"epoch": 1}, "/epoch"),
        ({"more": 1}, "/more"),
    ],
)
def test_what_does_not_fit_is_pointed_at(changed: dict[str, Any], pointer: str | None) -> None:
    with pytest.raises(Refused) as refused:
        commit_of(json.dumps(SOUND | changed).encode())
    assert (refused.value.code, refused.value.pointer) == ("message-invalid", pointer)


@pytest.mark.parametrize("name", SOUND)
def test_nothing_may_be_missing(name: str) -> None:
    document = {field: value for field, value in SOUND.items() if field != name}
    with pytest.raises(Refused) as refused:
        commit_of(json.dumps(document).encode())
    assert refused.value.pointer == f"/{name}"
