"""Deltas as a client applies them: merge patches (RFC 7396) on decoded JSON values."""

from __future__ import annotations

from typing import Any


def patched(value: Any, patch: Any) -> Any:
    """`value` with a merge patch applied; neither is changed.

    Objects are merged member by member, null removes a member, anything else takes the place.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = patched(merged.get(name), change)
    return merged
