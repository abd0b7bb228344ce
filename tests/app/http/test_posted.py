"""A posted request is a strict JSON object of texts; all else is refused with its code."""

from __future__ import annotations

import pytest

from tidegate.app.http.parameters import texts_of
from tidegate.app.refusals import Refused

PARAMETERS = {"options": "options-invalid", "filter": "filter-invalid"}


def test_fields_are_texts() -> None:
    assert texts_of(b'{"filter": "/a = 1", "options": ""}', PARAMETERS) == {
        "filter": "/a = 1",
        "options": "",
    }
    assert texts_of(b"{}", PARAMETERS) == {}


@pytest.mark.parametrize(
    ("body", "code", "position", "pointer"),
    [
        (b"", "options-invalid", 0, None),
        (b'{"options": "}', "options-invalid", 14, None),
        (b"[]", "options-invalid", None, None),
        (b'"oof"', "options-invalid", None, None),
        (b'{"colour": "red"}', "options-invalid", None, "/colour"),
        (b'{"options": 1}', "options-invalid", None, "/options"),
        (b'{"filter": null}', "filter-invalid", None, "/filter"),
    ],
)
def test_what_is_none_is_refused(
    body: bytes, code: str, position: int | None, pointer: str | None
) -> None:
    with pytest.raises(Refused) as refused:
        texts_of(body, PARAMETERS)
    problem = refused.value
    assert (problem.code, problem.position, problem.pointer) == (code, position, pointer)
