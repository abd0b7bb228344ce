"""The marker that names the rules of docs/semantics that a test holds."""

from __future__ import annotations

import pytest


def rule(*ids: str) -> pytest.MarkDecorator:
    """Mark a test, a class of tests or a module's `pytestmark` with rules such as `interval-3`."""
    return pytest.mark.rule(*ids)
