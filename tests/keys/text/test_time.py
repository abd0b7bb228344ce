"""Times as users write them (rule option-7), against Python's own calendar."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.app.archive.as_of import time_of
from tidegate.app.refusals import Refused
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.table import TABLE
from tidegate.keys.errors import TextInvalid
from tidegate.keys.text.time import parse_iso_ns, parse_time, time_text
from tidegate.pipeline.archive import replay
from tidegate.pipeline.errors import UsageInvalid

pytestmark = rule("option-7")


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON_MS = 1_757_419_200_000  # 2025-09-09T12:00:00Z


@pytest.mark.parametrize(
    ("text", "after_noon_ms"),
    [
        ("2025-09-09T12:00:00Z", 0),
        ("2025-09-09T12:00:00", 0),
        ("2025-09-09T12:00", 0),
        ("2025-09-09", -43_200_000),
        ("20250909T120000Z", 0),
        ("20250909T120000", 0),
        ("20250909T1200Z", 0),
        ("20250909", -43_200_000),
        ("2025-09-09T12:00:00.5Z", 500),
        ("2025-09-09T12:00:00.976304Z", 977),
        ("20250909T120000.000000001Z", 1),
        ("2025-09-09T12:00:00.999000Z", 999),
        ("2025-09-09T14:00:00+02:00", 0),
        ("2025-09-09T14:00:00+0200", 0),
        ("2025-09-09T06:30:00-05:30", 0),
        ("2025-09-09T14:00:00+02", 0),
        ("2025-09-09 12:00:00", 0),
        ("1757419200007", 7),
    ],
)
def test_a_time_is_read(text: str, after_noon_ms: int) -> None:
    assert parse_time(text) == NOON_MS + after_noon_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2025-9-9",
        "2025-09-09  12:00:00",
        "2025-09-09t12:00:00",
        "20250909T120000 Z",
        "2025-09-09T12",
        "2025-09-09T1200:00",
        "2025-09-09T12:00:00+2",
        "2025-09-09T12:00:00z",
        "2025-0909T12:00:00",
        "0000-01-01",
        "2025-13-01",
        "2025-00-01",
        "2025-02-29",
        "2100-02-29",
        "2025-09-31",
        "2025-09-00",
        "2025-09-09T24:00:00",
        "2025-09-09T12:60:00",
        "2025-09-09T12:00:60",
        "2025-09-09T12:00:00+15:00",
        "2025-09-09T12:00:00.Z",
        "\u0662025-09-09",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a time|there is no such"):
        parse_time(text)


@examples(30)
@given(st.datetimes(timezones=st.just(UTC)))
def test_all_days_are_those_of_the_calendar(moment: datetime) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1_000 * 1_000)
    expected_ms = (moment - EPOCH) // timedelta(milliseconds=1)
    assert parse_time(moment.isoformat()) == expected_ms
    assert parse_time(time_text(expected_ms)) == expected_ms


def test_the_canonical_spelling() -> None:
    assert time_text(NOON_MS) == "2025-09-09T12:00:00Z"
    assert time_text(NOON_MS + 7) == "2025-09-09T12:00:00.007Z"
    assert time_text(-1) == "1969-12-31T23:59:59.999Z"
    assert time_text(951_782_400_000) == "2000-02-29T00:00:00Z"


SPELLINGS = {
    "2025-09-09T12:00:00Z": NOON_MS,
    "20250909T120000.0000001Z": NOON_MS + 1,
    "2025-09-09 12:00": NOON_MS,
    "2025-09-09T14:00+02": NOON_MS,
    "1757419200000": NOON_MS,
    "20250909": NOON_MS - 43_200_000,
    "2025-09-09T12Z": None,
    "2025-W37-2": None,
    "2025-09-09T12:00:00,5Z": None,
    "2025-09-09_12:00": None,
    "12345678": None,
    "9999-12-31T23:59:59.9999Z": None,
    "999999999999999": None,
}


def _bookmark(text: str) -> int | None:
    with contextlib.suppress(OptionsInvalid):
        return cast("int", TABLE["bookmark"].read(text, 0))
    return None


def _as_of(text: str) -> int | None:
    with contextlib.suppress(Refused):
        return time_of(text)
    return None


def _from(text: str) -> int | None:
    with contextlib.suppress(UsageInvalid):
        return replay._time_of("--from", text)
    return None


@pytest.mark.parametrize("reader", [_bookmark, _as_of, _from])
@pytest.mark.parametrize(("text", "time_ms"), SPELLINGS.items())
def test_every_parameter_has_one_grammar(
    reader: Callable[[str], int | None], text: str, time_ms: int | None
) -> None:
    assert reader(text) == time_ms


@pytest.mark.parametrize(
    "text",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.9999Z"],
)
def test_a_time_that_could_not_be_asked_for_again_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("now", 0),
        ("2025-9-9", 4),
        ("2025-09", 7),
        ("2025-09-09T12", 13),
        ("2025-09-09T12:00:00.5z", 21),
        ("2025-09-09T12:60", 13),
        ("2025-09-09T24:00", 10),
        ("2025-09-09T12:00+15:00", 16),
        ("2025-09-31", 0),
    ],
)
def test_a_refusal_says_where_the_text_breaks(text: str, position: int) -> None:
    with pytest.raises(TextInvalid) as refused:
        parse_time(text, 10)
    assert refused.value.position == 10 + position


def test_nanoseconds_are_exact() -> None:
    assert parse_iso_ns("2025-09-09T12:00:00.123456789Z") == NOON_MS * 1_000_000 + 123_456_789
    assert parse_iso_ns("1969-12-31T23:59:59.999999999Z") == -1
