"""Texts of a request, read strictly: one spelling is right, and the rest is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tidegate.app.refusals import Refused

_WEIGHT: Final = re.compile(r"q=(0(?:\.[0-9]*)?|1(?:\.0*)?)")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)


def checked_characters(text: str, characters_max: int, code: str, what: str) -> str:
    """Return a text of at most `characters_max`; refuse with `code` for a longer one."""
    if len(text) > characters_max:
        detail = f"{what} has at most {characters_max} characters."
        raise Refused(code, detail, position=characters_max)
    return text


def integer(text: str, *, least: int, most: int, code: str, what: str) -> int:
    """Return a whole number within bounds; refuse with `code` for anything else."""
    # int() would take `1_000`, ` 5` and digits of other scripts.
    if not _INTEGER.fullmatch(text) or not least <= int(text) <= most:
        raise Refused(code, f"{what} is a whole number from {least} to {most}.")
    return int(text)


def boolean(text: str, *, code: str, what: str) -> bool:
    """Return the value of `true` or `false`; refuse with `code` for anything else."""
    if text not in {"true", "false"}:
        raise Refused(code, f"{what} is true or false.")
    return text == "true"


def one_of(text: str, choices: tuple[str, ...], *, code: str, what: str) -> str:
    """Return a text that is one of `choices`; refuse with `code` for another."""
    if text not in choices:
        raise Refused(code, f"{what} is one of {listed(choices)}.")
    return text


def listed(names: Iterable[str]) -> str:
    """Return names for a sentence."""
    return ", ".join(names) or "none"


def weights(header: str) -> dict[str, float]:
    """Return each name in a header, in lower case, with its weight from 0 to 1.

    As in Accept and Accept-Encoding (RFC 9110, 12.4.2).
    """
    found: dict[str, float] = {}
    for item in header.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name:
            found[name] = min(map(_weight, parameters), default=1.0)
    return found


def _weight(parameter: str) -> float:
    """Return a weight; any other parameter changes nothing."""
    found = _WEIGHT.fullmatch(parameter)
    return 1.0 if found is None else float(found[1])
