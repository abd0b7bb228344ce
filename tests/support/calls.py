"""How often something is called."""

from __future__ import annotations

from typing import Any

import pytest


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[int]:
    """Return the number of calls of a method, in a list of one."""
    calls, method = [0], getattr(owner, name)

    def counting(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        return method(*arguments, **named)

    monkeypatch.setattr(owner, name, counting)
    return calls
