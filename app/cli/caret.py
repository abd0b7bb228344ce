"""Where a refusal points to: the text at fault, and a caret under its position."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients.errors import GatewayProblem

BEFORE_MAX = 50
AFTER_MAX = 25
OTHERS = ("order_by", "select")


def pointed(problem: GatewayProblem, arguments: argparse.Namespace) -> list[str]:
    """Two lines to show on a terminal; none where the problem has no place in an argument."""
    text, position = _text_at_fault(problem, arguments), problem.position
    if not text or position is None or position > len(text):
        return []
    start = max(0, position - BEFORE_MAX)
    shown = " ".join(text[start : position + AFTER_MAX].splitlines())
    return [f"  {shown}", "  " + " " * (position - start) + "^"]


def _text_at_fault(problem: GatewayProblem, arguments: argparse.Namespace) -> str | None:
    """The argument by the problem's code; others than options are named in its detail."""
    given: dict[str, str | None] = vars(arguments)
    if problem.code == "filter-invalid":
        return given.get("filter")
    if problem.code != "options-invalid":
        return None
    named = (name for name in OTHERS if name in given and problem.detail.startswith(name))
    return given.get(next(named, "options"))
