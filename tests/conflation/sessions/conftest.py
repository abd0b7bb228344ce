"""What tests of sessions share."""

from __future__ import annotations

import pytest

from tests.conflation.sessions.large import AT_ONCE, MODULES


@pytest.fixture
def few_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make flushes and steps go in parts of a few rows."""
    for module in MODULES:
        for name in ("ROWS_AT_ONCE", "MADE_AT_ONCE"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, AT_ONCE)
