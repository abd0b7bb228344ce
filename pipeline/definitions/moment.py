"""Moments as users write them: ISO 8601 (UTC where no zone stands), or milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime.fromtimestamp(0, UTC)
MILLISECONDS_DIGITS_MAX = 15


def moment_ms(text: str) -> int | None:
    """Milliseconds of the epoch, parts of one rounded up; None if it is no such time."""
    if text.isascii() and text.isdigit():
        # Of eight digits or less it is a date, 20261121, or nothing that anybody means.
        return int(text) if 8 < len(text) <= MILLISECONDS_DIGITS_MAX else _iso_ms(text)
    return _iso_ms(text)


def moment_text(time_ms: int) -> str:
    """The canonical spelling, `2026-11-21T21:37:10.123Z`."""
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _iso_ms(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return -((_EPOCH - moment) // timedelta(milliseconds=1))
