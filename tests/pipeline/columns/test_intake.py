"""What of recorded messages is read from columns and what from bodies, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.rules import rule
from tidegate.keys.filter import Filter
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.blocks import Messages
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.conflator import DELETED, EXPIRED, PUT, UNMATCHED
from tidegate.pipeline.columns.deliveries import conflate_in_place
from tidegate.pipeline.columns.intake import Intake
from tidegate.pipeline.columns.intervals import MILLISECOND_NS, Interval, Pace
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.errors import HistoryInvalid

SECOND = Interval(1_000 * MILLISECOND_NS, Pace.KEY)
TIME = TimeField(FieldPath.parse("/t"))

NAMES = ("position", "time_ms", "key", "body", "removed", "refused")

Row = tuple[int | str | bytes | None, ...]
"""As many of `NAMES` as a test says."""


def batch(*rows: Row) -> pa.RecordBatch:
    said = [
        {"file": "dir/a", "block": 0, **dict(zip(NAMES, row, strict=False))}  # the rest is null
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(said, schema=arrow_schema(PUBLISHED))


def taken(conflation: Conflation, *rows: Row) -> tuple[Messages, list[str]]:
    intake = Intake(conflation)
    [found] = intake.messages(iter([batch(*rows)]))
    return found, [intake.texts[code] for code in found.codes.tolist()]


def test_columns_are_believed_and_bodies_not_looked_at() -> None:
    found, keys = taken(
        Conflation(KeySpec.of(["/k"]), SECOND), (7, 5, '["x"]', b"not JSON"), (9, 6, '["y"]', None)
    )
    assert keys == ['["x"]', '["y"]']
    assert found.positions.tolist() == [7, 9]
    assert found.times_ns.tolist() == [5 * MILLISECOND_NS, 6 * MILLISECOND_NS]
    assert found.gone.tolist() == [PUT, DELETED]


def test_what_columns_do_not_say_stands_in_the_bodies() -> None:
    conflation = Conflation(KeySpec.of(["/k"]), SECOND, TIME)
    found, keys = taken(
        conflation, (None, None, None, b'{"k":1.0,"t":3}'), (None, None, None, b" "),
        (None, None, None, b'{"k":"z","t":2}'),
    )  # fmt: skip
    assert keys == ["[1]", '["z"]']
    assert found.times_ns.tolist() == [3 * MILLISECOND_NS, 2 * MILLISECOND_NS]
    assert found.greatest_ns.tolist() == [3 * MILLISECOND_NS, 3 * MILLISECOND_NS]
    assert found.positions.tolist() == [1, 3]


def test_an_archive_has_times_and_bodies_have_keys() -> None:
    found, keys = taken(Conflation(KeySpec.of(["/k"]), SECOND), (1, 9, None, b'{"k":1}'))
    assert keys == ["[1]"]
    assert found.times_ns.tolist() == [9 * MILLISECOND_NS]


def test_what_does_not_match_is_gone_with_its_body() -> None:
    conflation = Conflation(KeySpec.of(["/k"]), SECOND, filter=Filter.parse("/v > 1"))
    found, _ = taken(conflation, (1, 1, "[1]", b'{"v":1}'), (2, 1, "[1]", b'{"v":2}'))
    assert found.gone.tolist() == [UNMATCHED, PUT]
    assert found.bodies.to_pylist() == [None, b'{"v":2}']


@rule("pipeline-5")
def test_a_removal_says_why_or_counts_as_deleted() -> None:
    told = ("deleted", "expired", "match", None, "entitlement")
    rows = [(at, at, "[1]", None, why) for at, why in enumerate(told, 1)]
    found, _ = taken(Conflation(KeySpec.of(["/k"]), SECOND), *rows, (9, 9, "[1]", b"{}"))
    assert found.gone.tolist() == [DELETED, EXPIRED, UNMATCHED, DELETED, DELETED, PUT]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((1, 5, None, None), "line 1: a removal needs a key"),
        ((1, 5, None, b"{"), "line 1: not JSON"),
        ((1, None, "[1]", b"{}"), "line 1: no time in /t"),
    ],
)
def test_what_nobody_can_read_is_named(row: Row, said: str) -> None:
    with pytest.raises(HistoryInvalid, match=f"^a, {said}"):
        taken(Conflation(KeySpec.of(["/k"]), SECOND, TIME), row)


def test_a_removal_of_nobody_is_no_line_to_set_aside() -> None:
    asked = Conflation(KeySpec.of(["/k"]), SECOND, sets_aside=True)
    with pytest.raises(HistoryInvalid, match=r"^a, line 1: a removal needs a key$"):
        taken(asked, (1, 5, None, None))


@rule("pipeline-7")
def test_what_its_source_has_refused_is_no_message_whatever_it_says() -> None:
    rows: list[Row] = [
        (1, 5, None, b'{"k":1}', None, "message-invalid: no row"),
        (2, 5, None, b'{"k":2}'),
        (3, 5, None, b"{"),
    ]
    asked = Conflation(KeySpec.of(["/k"]), SECOND, sets_aside=True)
    aside, found = Intake(asked).messages(iter([batch(*rows)]))
    assert aside.reasons[0] == "message-invalid: no row"
    assert aside.reasons[1].startswith("message-invalid: not JSON")
    assert aside.bodies.to_pylist() == [b'{"k":1}', b"{"]
    assert found.bodies.to_pylist() == [b'{"k":2}']
    with pytest.raises(HistoryInvalid, match=r"^a, line 1: message-invalid: no row$"):
        taken(Conflation(KeySpec.of(["/k"]), SECOND), *rows)


def test_without_a_time_anywhere_it_is_said() -> None:
    with pytest.raises(HistoryInvalid, match=r"^a, line 1: no time$"):
        taken(Conflation(KeySpec.of(["/k"]), SECOND), (1, None, "[1]", b"{}"))


def test_nothing_in_is_nothing_out() -> None:
    assert list(conflate_in_place(iter([]), Conflation(KeySpec(), SECOND))) == []
