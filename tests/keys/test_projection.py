"""Aggregated subscriptions: one row for each group (rules view-3 to view-6)."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.errors import FilterInvalid, PathInvalid
from tidegate.keys.projection import COLUMNS_MAX, Projection

pytestmark = rule("view-3", "view-4", "view-5", "view-6")


ORDERS = [
    b'{"customer":{"id":7.0},"id":1,"qty":2,"px":0.1,"note":"a","tags":[1.0,2]}',
    b'{"customer":{"id":7},"id":2,"qty":3,"px":0.2}',
    b'{"customer":{"id":7e0},"id":3,"qty":5,"px":null,"note":1.50,"tags":[]}',
]


def projected(columns: str, *records: bytes, grouping: str = "[/g]") -> bytes:
    return Projection.parse(columns, 0, grouping, 0).row(records)


@rule("view-4", "view-5", "view-3")
@pytest.mark.parametrize(
    ("columns", "row"),
    [
        # 3 * 0.2 is a double, 0.6000000000000001, before it is summed
        ("[SUM(/qty * /px) AS /notional]", b"7e0},0.8000000000000002"),
        ("[SUM(/px) AS /n]", b"7e0},0.3"),
        ("[COUNT(/id) AS /n]", b"7e0},3"),
        ("[COUNT(/px) AS /n]", b"7e0},2"),
        ("[COUNT(/note) AS /n]", b"7e0},2"),
        ("[LAST(/note) AS /n]", b"7e0},1.50"),
        ("[FIRST(/tags) AS /n]", b"7e0},1.0"),
        ("[MIN(/px) AS /n]", b"7e0},0.1"),
        ("[MAX(/qty / 2) AS /n]", b"7e0},2"),
        ("[AVG(/qty) AS /n]", b"7e0},3.3333333333333335"),
        ("[STDDEV_POP(/nowhere) AS /n]", b"7e0},null"),
        ("[SUM(/note) AS /n]", b"7e0},null"),
        # neither aggregated nor grouped: the last record's
        ("[/note AS /n]", b"7e0},1.50"),
        ("[/tags AS /n]", b"7e0},[]"),
        ("[/px AS /n]", b"7e0},null"),
        ("[$.tags[0] AS /n]", b"7e0}"),
        ("[/qty + 1 AS /n]", b"7e0},6"),
        ("[UPPER(/nowhere) AS /n]", b"7e0},null"),
    ],
)
def test_a_column_of_a_row(columns: str, row: bytes) -> None:
    name = b'"notional":' if b"notional" in columns.encode() else b'"n":'
    group, comma, result = row.partition(b",")
    shown = b'{"customer":{"id":' + group + comma + (name + result if comma else b"") + b"}"
    assert projected(columns, *ORDERS, grouping="[/customer/id]") == shown


@rule("view-3")
def test_grouping_fields_stand_first_and_columns_in_their_order() -> None:
    record = b'{"b":2.0,"g":1.0,"a":{"y":1,"x":2},"z":9}'
    columns = "[/b,COUNT(/g) AS /n/all,/g,/a/x,COUNT(/q) AS /n/q]"
    assert projected(columns, record) == (b'{"g":1.0,"b":2.0,"n":{"all":1,"q":0},"a":{"x":2}}')
    assert projected("[/b]", b'{"g":1,"b":2}', b'{"g":1}') == b'{"g":1}'
    assert projected("[/b,COUNT(/b) AS /n]") == b'{"n":0}'


@pytest.mark.parametrize("record", [b"5", b"null", b"[]", b'"x"', b"{}"])
def test_a_record_that_is_no_object_has_no_fields(record: bytes) -> None:
    assert projected("[/b,SUM(/b) AS /s,COUNT(/b) AS /n]", record) == b'{"s":null,"n":0}'
    assert Projection.parse("[/b]", 0, "[/g]", 0).group_key(record) == "[null]"


@rule("view-3")
def test_records_of_one_group_have_one_key() -> None:
    projection = Projection.parse("[/id]", 0, "[/customer/id,/x]", 0)
    assert {projection.group_key(order) for order in ORDERS} == {"[7,null]"}
    assert projection.group_key(b'{"customer":{"id":"7"}}') == '["7",null]'


@rule("view-4")
def test_a_projection_is_a_value() -> None:
    loose = Projection.parse(
        "[ /b , $.a as /x,stddev( /q*/p ) AS /s, Sum((/q)) AS /t ]", 0, "[ /g ]", 0
    )
    assert str(loose) == (
        "projection=[/b,/a AS /x,STDDEV_SAMP(/q * /p) AS /s,SUM(/q) AS /t],grouping=[/g]"
    )
    again = Projection.parse(loose.projection_text, 0, str(loose.grouping), 0)
    assert again == loose
    assert hash(again) == hash(loose)
    assert str(pickle.loads(pickle.dumps(loose))) == str(loose)
    assert Projection.parse("[/b AS /b]", 0, "[/g]", 0) == Projection.parse("[/b]", 0, "[/g]", 0)


@rule("view-6")
@pytest.mark.parametrize(
    ("columns", "position"),
    [
        ("", 100),
        ("/a", 100),
        ("[/a", 100),
        ("[/a, SUM(/b)]", 105),
        ("[/a + 1]", 101),
        ("[$.a[0]]", 101),
        ("[/a AS $.a[0]]", 107),
        ("[SUM(/a) + 1 AS /b]", 101),
        ("[SUM(AVG(/a)) AS /b]", 101),
        ("[SUM() AS /b]", 101),
        ("[SUM(/a,/b) AS /b]", 101),
        # rule view-6
        ("[/a,/b,/a]", 107),
        ("[/a,SUM(/b) AS /a]", 104),
        ("[/a, /a/b]", 105),
        ("[SUM(/b) AS /g]", 101),
        ("[/b AS /g]", 101),
        ("[/g/x]", 101),
        ("[/g,/g]", 104),
    ],
)
def test_malformed_projections_are_refused_with_their_place(columns: str, position: int) -> None:
    with pytest.raises(PathInvalid) as refused:
        Projection.parse(columns, 100, "[/g]", 200)
    assert refused.value.position == position


@pytest.mark.parametrize(
    ("columns", "position"),
    [
        ("[]", 101),
        ("[/a,]", 104),
        ("[/a /b]", 105),
        ("[/a AS]", 106),
        ("[/a AS b]", 107),
        ("[MEDIAN(/a) AS /b]", 101),
        ("[/a], [/b]", 103),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(columns: str, position: int) -> None:
    with pytest.raises(FilterInvalid) as refused:
        Projection.parse(columns, 100, "[/g]", 200)
    assert refused.value.position == position


@pytest.mark.parametrize(
    ("grouping", "position"), [("", 200), ("[]", 201), ("[/a,b]", 204), ("[/a,$.b[0]]", 200)]
)
def test_malformed_groupings_are_refused_with_their_place(grouping: str, position: int) -> None:
    with pytest.raises(PathInvalid) as refused:
        Projection.parse("[/x]", 100, grouping, 200)
    assert refused.value.position == position


def test_there_are_at_most_64_columns() -> None:
    columns = [f"/f{number:02}" for number in range(COLUMNS_MAX + 1)]
    parsed = Projection.parse(f"[{','.join(columns[:-1])}]", 0, "[/g]", 0)
    assert len(parsed.columns) == COLUMNS_MAX
    with pytest.raises(PathInvalid, match="64") as refused:
        Projection.parse(f"[{','.join(columns)}]", 0, "[/g]", 0)
    assert refused.value.position == 1 + 5 * COLUMNS_MAX


pieces = st.sampled_from(
    [*"[]()/,$*+-'\" ", "/a", "/b", " AS ", "SUM(", "COUNT(", ")", "$.a[0]", "1", "NULL", "NOT "]
)


@given(st.lists(pieces, max_size=12).map("".join))
@examples(300, nightly=10_000)
def test_whatever_is_parsed_parses_again_from_its_own_text(columns: str) -> None:
    try:
        projection = Projection.parse(f"[{columns}]", 0, "[/g]", 0)
    except (PathInvalid, FilterInvalid):
        return
    assert Projection.parse(projection.projection_text, 0, "[/g]", 0) == projection
    json.loads(projection.row(ORDERS))


values = st.sampled_from(
    ["1", "0.1", "1e999", "-1e16", '"x"', '"2"', '""', "null", "true", "[]", "[1,[2]]", '{"a":1}']
)
EVERYTHING = (
    "["
    + ",".join(
        f"{name}({argument}) AS /{name}{at}"
        for name in (
            "COUNT",
            "COUNT_DISTINCT",
            "SUM",
            "AVG",
            "MIN",
            "MAX",
            "FIRST",
            "LAST",
            "STDDEV",
        )
        for at, argument in enumerate(["/a", "/a/a", "/a * 2"])
    )
    + ",/a,/a + /b AS /c]"
)


@given(st.lists(values.map(lambda text: f'{{"g":1,"a":{text}}}'.encode()), min_size=1, max_size=5))
@examples(150, nightly=5_000)
def test_any_records_make_a_row(records: list[bytes]) -> None:
    json.loads(projected(EVERYTHING, *records))
