"""A registered merger with each of the four answers, and one that fails now and then."""

from __future__ import annotations

from typing import Any

from tidegate.keys.merging import Verdict

MERGER = "tests.pipeline.merger:by_value"


def by_value(current: Any, new: Any) -> Any:
    """Which messages are merged, and in which order, shows in what becomes of them."""
    match (current["v"] + 2 * new["v"]) % 6:
        case 0:
            return Verdict.KEEP_CURRENT
        case 1:
            return Verdict.KEEP_NEW
        case 2:
            return Verdict.NO_CONFLATION
        case 3:
            raise ValueError
        case _:
            return {**new, "v": (2 * current["v"] + new["v"]) % 10, "n": current.get("n", 1) + 1}


def failing(current: Any, new: Any) -> Any:
    """Conflates nothing."""
    raise ValueError
