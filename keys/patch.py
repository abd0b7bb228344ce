"""JSON Merge Patches (RFC 7396) on JSON text: deltas made, applied and composed.

A patch removes a member with null, so it cannot set one to null. Where no patch can express a
change the functions return None, and the caller sends the full value.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.keys.jsontext import EMPTY_OBJECT, NULL, Members, are_equal, members, object_text
from tidegate.keys.path import FieldPath, Step

_REMOVED = msgspec.Raw(NULL)


def diff(old: bytes, new: bytes) -> bytes | None:
    """Return the patch that makes `old` into `new`, `{}` if they are equal.

    Changed members are in the order of `new`, removed ones after them. None if either is not an
    object, or if a null would have to be set.
    """
    before, after = members(old), members(new)
    if before is None or after is None:
        return None
    changes: Members = {}
    for name, value in after.items():
        change = _change(before.get(name), bytes(value))
        if change is None:
            return None
        if change != b"":
            changes[name] = msgspec.Raw(change)
    changes.update((name, _REMOVED) for name in before if name not in after)
    return object_text(changes)


def apply(value: bytes, patch: bytes) -> bytes:
    """Return the value after the patch, as RFC 7396 has it; untouched members byte for byte."""
    changes = members(patch)
    if changes is None:
        return patch
    patched = members(value) or {}
    for name, change in changes.items():
        text = bytes(change)
        if text == NULL:
            patched.pop(name, None)
        else:
            before = patched.get(name)
            patched[name] = msgspec.Raw(apply(NULL if before is None else bytes(before), text))
    return object_text(patched)


def compose(first: bytes, second: bytes) -> bytes | None:
    """Return the one patch with the effect of `first` and then `second`, on any value.

    It names every member that either names. None where no patch can express both: an object after
    a null or a scalar replaces the member, while a patch would merge it into older members.
    """
    later = members(second)
    if later is None:
        return second
    changes = members(first)
    if changes is None:
        return None
    for name, change in later.items():
        before = changes.get(name)
        # Only objects merge; any other change takes the place of an earlier one.
        if before is not None and members(bytes(change)) is not None:
            # After a null or a scalar, an object would merge into members that are gone.
            both = compose(bytes(before), bytes(change))
            if both is None:
                return None
            change = msgspec.Raw(both)
        changes[name] = change
    return object_text(changes)


def with_fields(patch: bytes, value: bytes, paths: Sequence[FieldPath]) -> bytes:
    """Put fields of the resulting value in front of a patch, so that a delta names its record.

    A field inside an array brings the array; one that holds null, or is missing, is left out.
    """
    if members(value) is None or members(patch) is None:
        return patch
    named = EMPTY_OBJECT
    for path in paths:
        field = _only(value, path.steps)
        if field is not None:
            named = apply(named, field)
    return compose(named, patch) or patch


def is_empty(patch: bytes) -> bool:
    """Return True if the patch changes no value."""
    return members(patch) == {}


def _change(before: msgspec.Raw | None, value: bytes) -> bytes | None:
    """Return a member's part of a patch: b"" if it is unchanged, None if no patch can say it."""
    if before is not None:
        old = bytes(before)
        if members(old) is not None and members(value) is not None:
            inner = diff(old, value)
            return b"" if inner == EMPTY_OBJECT else inner
        if are_equal(old, value):
            return b""
    return None if _holds_null(value) else value


def _holds_null(value: bytes) -> bool:
    """Return True if a patch would lose a null; nulls inside arrays are safe."""
    inner = members(value)
    if inner is None:
        return value == NULL
    return any(_holds_null(bytes(part)) for part in inner.values())


def _only(value: bytes, steps: tuple[Step, ...]) -> bytes | None:
    """Return the value reduced to what the steps lead to; None if that is not there."""
    # A patch cannot name a place in an array, so it brings the whole array.
    if not steps or isinstance(steps[0], int):
        return None if _holds_null(value) else value
    inner = members(value)
    if inner is None or steps[0] not in inner:
        return None
    found = _only(bytes(inner[steps[0]]), steps[1:])
    return None if found is None else object_text({steps[0]: msgspec.Raw(found)})
