"""Times: ISO 8601, or milliseconds since 1970; the one grammar of every option and parameter."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from tidegate.keys.errors import TextInvalid

DAY_S = 86_400
SECOND_NS = 1_000_000_000
MILLISECOND_NS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FIRST_NS = (date.min.toordinal() - _EPOCH_DAY) * DAY_S * SECOND_NS
_END_NS = (date.max.toordinal() + 1 - _EPOCH_DAY) * DAY_S * SECOND_NS

# Everything is optional, so that a match ends where the text breaks.
_TIME = re.compile(
    r"""(?:\d{4}(?:(?P<dash>-?)\d\d(?:(?P=dash)(?P<day>\d\d)
        (?:[T ](?P<hour>[01]\d|2[0-3])(?:(?P<colon>:?)(?P<minute>[0-5]\d)
           (?:(?P=colon)[0-5]\d(?:\.(?P<fraction>\d{1,9}))?)?
           (?:Z|[+-](?:0\d|1[0-4])(?::?[0-5]\d)?)?)?)?)?)?)?""",
    re.VERBOSE | re.ASCII,
)
# Eight digits are a date, and fewer have no plausible meaning.
_MILLISECONDS = re.compile(r"[0-9]{9,15}", re.ASCII)


def parse_time(text: str, position: int = 0) -> int:
    """Parse a time to milliseconds of the epoch, rounded up.

    Rounding down would put a start before the written time.

    Args:
        text: a time for `parse_iso_ns`, or milliseconds since 1970 in 9 to 15 digits.
        position: the offset of this text in the text that was sent.

    Raises:
        TextInvalid: no such time, or none of the years 1 to 9999 in UTC.
    """
    if _MILLISECONDS.fullmatch(text):
        time_ms = int(text)
    else:
        time_ms = -(-parse_iso_ns(text, position) // MILLISECOND_NS)
    if time_ms * MILLISECOND_NS >= _END_NS:  # it could not be printed, and asked for again
        raise TextInvalid("a time is in the years 1 to 9999", position)
    return time_ms


def parse_iso_ns(text: str, position: int = 0) -> int:
    """Parse an ISO 8601 time to nanoseconds of the epoch.

    A date (`2025-09-09`, `20250909`) is its midnight. A time of day stands after `T` or a blank,
    extended or basic, to the minute, the second or at most nine decimals, in UTC where no zone
    (`Z`, `+02`, `+0200`, `+02:00`) stands.

    Raises:
        TextInvalid: anything else, at the first character that does not fit, or no such day.
    """
    found = _TIME.match(text)
    assert found is not None, "everything in it is optional"
    day, hour, minute, fraction = found.group("day", "hour", "minute", "fraction")
    if not day or (hour and not minute) or found.end() < len(text):
        raise TextInvalid("expected a time such as 2025-09-09T17:19:19Z", position + found.end())
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise TextInvalid("there is no such day", position) from None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    time_ns = (since.days * DAY_S + since.seconds) * SECOND_NS + since.microseconds * 1_000
    if fraction and len(fraction) > 6:  # what a datetime has no room for
        time_ns += int(fraction[6:].ljust(3, "0"))
    if not _FIRST_NS <= time_ns < _END_NS:
        raise TextInvalid("a time is in the years 1 to 9999", position)
    return time_ns


def time_text(timestamp_ms: int) -> str:
    """Return the canonical spelling, `2025-09-09T17:19:19.976Z`, of years 1 to 9999."""
    moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    precision = "milliseconds" if moment.microsecond else "seconds"
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"
