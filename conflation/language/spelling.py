"""Spelling: options as a text that says the same, for those who hear of them later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from conflation.duration import duration_text
from conflation.language.iso_time import time_text
from conflation.language.options import Options
from conflation.language.rate import rate_text
from conflation.language.readers import FLAGS

BESIDE = ("positions", "is_change")
"""Fields that are no options."""


def spelled(options: Options) -> str:
    """A text that parses to these options; names stand in the order of the contract's table.

    `normal.granted` spells what was decided; this spells what was asked for.
    """
    return ",".join(_parts(options))


def _parts(options: Options) -> Iterator[str]:
    for name in (each.name for each in fields(options)):
        if name in BESIDE or not options.says(name):
            continue
        value = getattr(options, name)
        if name in FLAGS:
            yield name
        elif name == "projection":  # with its grouping
            yield str(value)
        else:
            yield f"{name}={_SPELLERS.get(name, str)(value)}"


def _interval(value: int | str) -> str:
    return value if isinstance(value, str) else duration_text(value) if value else "none"


def _start(value: object) -> str:
    return time_text(value) if isinstance(value, int) else str(value)


_SPELLERS: Mapping[str, Callable[[Any], str]] = {
    "conflation": _interval,
    "min": duration_text,
    "max": duration_text,
    "max_age": duration_text,
    "rate_max_gap": duration_text,
    "never": "[{}]".format,
    "flush_on": "[{}]".format,
    "bookmark": _start,
    "rate": rate_text,
}
