"""What a request carries and when it goes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tidegate.app.cli.errors import UsageInvalid
from tidegate.app.cli.lines import Line
from tidegate.app.cli.publish import LINES_PER_REQUEST, batches, parse_rate


def lines(count: int, text: bytes = b"{}") -> Iterator[Line]:
    return (Line(number, text) for number in range(1, count + 1))


def due(rate: str, time_field: str | None, *texts: bytes) -> list[float]:
    schedule = parse_rate(rate, time_field)
    assert schedule is not None
    return [schedule(Line(number, text)) for number, text in enumerate(texts, start=1)]


def test_requests_have_a_thousand_lines() -> None:
    sizes = [len(batch) for batch in batches(lines(2 * LINES_PER_REQUEST + 5))]
    assert sizes == [1000, 1000, 5]


def test_large_lines_share_a_request_with_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.app.cli.publish.BYTES_PER_REQUEST", 100)
    assert [len(batch) for batch in batches(lines(5, b"x" * 60))] == [2, 2, 1]


def test_what_has_arrived_does_not_wait_for_more() -> None:
    arriving = [Line(1, b"1"), None, None, Line(2, b"2"), Line(3, b"3"), None]
    assert [[line.number for line in batch] for batch in batches(iter(arriving))] == [[1], [2, 3]]


def test_nothing_is_no_request() -> None:
    assert list(batches(iter([None, None]))) == []


def test_a_steady_rate() -> None:
    assert due("4", None, b"1", b"2", b"3") == [0.0, 0.25, 0.5]


def test_a_recorded_speed_in_milliseconds_and_in_iso_times() -> None:
    assert due("2x", "/ts", b'{"ts":1000}', b'{"ts":2000.0}', b'{"ts":1500}', b'{"ts":3000}') == [
        0.0,
        0.5,
        0.5,
        1.0,
    ]
    moments = [b'{"a":{"t":"2013-10-08T13:30:0%dZ"}}' % second for second in (0, 4)]
    assert due("0.5X", "$.a.t", *moments) == [0.0, 8.0]


@pytest.mark.parametrize("text", [b"{}", b'{"ts":null}', b'{"ts":"soon"}', b'{"ts":true}', b"["])
def test_a_message_without_time_is_named(text: bytes) -> None:
    with pytest.raises(UsageInvalid, match="line 1 has no time in /ts"):
        due("1x", "/ts", text)


@pytest.mark.parametrize(
    ("rate", "time_field"),
    [
        *(("fast", None), ("0", None), ("-5", None), ("2y", None), ("", None), ("1e3", None)),
        *(("0x", "/ts"), ("2x", None), ("5", "/ts"), (None, "/ts"), ("2x", "ts")),
    ],
)
def test_a_rate_that_makes_no_sense(rate: str | None, time_field: str | None) -> None:
    with pytest.raises(UsageInvalid):
        parse_rate(rate, time_field)


def test_paced_messages_take_their_time_and_share_requests() -> None:
    started_at = time.monotonic()
    sizes = [len(batch) for batch in batches(lines(100), parse_rate("200", None))]
    assert time.monotonic() - started_at >= 0.4
    assert sum(sizes) == 100
    assert len(sizes) <= 30
