"""A search finds failed assertions, wherever they are raised, and no other error hides a bug."""

from __future__ import annotations

import pytest

from tests.simulation import search as module
from tests.simulation.search import search

FAILED = AssertionError("offsets have no holes")


@pytest.mark.parametrize(
    "error",
    [
        FAILED,
        ExceptionGroup("tasks", [ValueError("another"), ExceptionGroup("inner", [FAILED])]),
    ],
)
def test_a_failed_assertion_is_found(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run", lambda plan: raised(error))
    assert search([7]).broken == "offsets have no holes\nagain: python -m tests.simulation 7"


@pytest.mark.parametrize(
    "error", [KeyError("plan"), ExceptionGroup("tasks", [ValueError("one"), KeyError("two")])]
)
def test_another_error_is_raised_with_its_seed(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "run", lambda plan: raised(error))
    with pytest.raises(type(error)) as crash:
        search([7])
    assert crash.value.__notes__ == ["again: python -m tests.simulation 7"]


def raised(error: Exception) -> None:
    raise error
