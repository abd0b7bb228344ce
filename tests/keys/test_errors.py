"""Every error of keys has the problem code that users see."""

from __future__ import annotations

import pytest

from tidegate.keys.errors import JsonInvalid, KeyInvalid, KeyMissing, KeysError, PathInvalid


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (PathInvalid, "key-invalid"),
        (KeyMissing, "key-missing"),
        (KeyInvalid, "key-invalid"),
        (JsonInvalid, "message-invalid"),
    ],
)
def test_errors_have_a_code_a_detail_and_perhaps_a_place(kind: type[KeysError], code: str) -> None:
    error = kind("what is wrong", 7)
    assert (error.code, error.detail, error.position, str(error)) == (
        *(code, "what is wrong", 7),
        "what is wrong",
    )
    assert kind("somewhere").position is None
    assert isinstance(error, ValueError)
