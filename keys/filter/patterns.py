"""Regular expressions: RE2 over characters, linear in the text, never logging."""

from __future__ import annotations

from functools import lru_cache

import re2

from keys.errors import FilterInvalid

INSTRUCTIONS_MAX = 4_000


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    return re2.compile(pattern, options)


def compiled(pattern: str, position: int | None = None) -> re2._Regexp:
    """The compiled pattern.

    Raises:
        FilterInvalid: no RE2 expression, or one whose program takes more than a megabyte.
    """
    try:
        return _compiled(pattern)
    except re2.error as error:
        raise FilterInvalid("this is no regular expression that RE2 takes", position) from error
