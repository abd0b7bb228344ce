"""Projections, and the aggregates that each column has of its group."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import statistics

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.errors import FilterInvalid, PathInvalid
from tidegate.keys.projection import COLUMNS_MAX, Aggregate, Cell, Projection, aggregated

ORDERS = [
    b'{"customer":{"id":7.0},"id":1,"qty":2,"px":0.1,"note":"a","tags":[1.0,2]}',
    b'{"customer":{"id":7},"id":2,"qty":3,"px":0.2}',
    b'{"customer":{"id":7e0},"id":3,"qty":5,"px":null,"note":1.50,"tags":[]}',
]


def projected(columns: str, *records: bytes, grouping: str = "[/g]") -> bytes:
    return Projection.parse(columns, 0, grouping, 0).row(records)


@rule("view-3", "view-4", "view-5", "view-6")
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


@rule("view-5")
def test_a_result_beyond_a_double_is_null() -> None:
    records = [b'{"g":1,"a":1e308}', b'{"g":1,"a":1e308}', b'{"g":1,"a":-5e307}']
    columns = "[SUM(/a) AS /s,AVG(/a) AS /m,STDDEV_POP(/a) AS /d,MAX(/a) AS /x]"
    assert projected("[SUM(/a) AS /s]", *records) == b'{"g":1,"s":1' + b"5" + b"0" * 307 + b"}"
    row = projected(columns, *records, records[0])
    assert row.startswith(b'{"g":1,"s":null,"m":6')
    assert row.endswith(b',"x":1e308}')


@rule("view-3", "view-4", "view-5", "view-6")
@rule("view-3")
def test_grouping_fields_stand_first_and_columns_in_their_order() -> None:
    record = b'{"b":2.0,"g":1.0,"a":{"y":1,"x":2},"z":9}'
    columns = "[/b,COUNT(/g) AS /n/all,/g,/a/x,COUNT(/q) AS /n/q]"
    assert projected(columns, record) == (b'{"g":1.0,"b":2.0,"n":{"all":1,"q":0},"a":{"x":2}}')
    assert projected("[/b]", b'{"g":1,"b":2}', b'{"g":1}') == b'{"g":1}'
    assert projected("[/b,COUNT(/b) AS /n]") == b'{"n":0}'


@rule("view-3", "view-4", "view-5", "view-6")
@pytest.mark.parametrize("record", [b"5", b"null", b"[]", b'"x"', b"{}"])
def test_a_record_that_is_no_object_has_no_fields(record: bytes) -> None:
    assert projected("[/b,SUM(/b) AS /s,COUNT(/b) AS /n]", record) == b'{"s":null,"n":0}'
    assert Projection.parse("[/b]", 0, "[/g]", 0).group_key(record) == "[null]"


@rule("view-3", "view-4", "view-5", "view-6")
@rule("view-3")
def test_records_of_one_group_have_one_key() -> None:
    projection = Projection.parse("[/id]", 0, "[/customer/id,/x]", 0)
    assert {projection.group_key(order) for order in ORDERS} == {"[7,null]"}
    assert projection.group_key(b'{"customer":{"id":"7"}}') == '["7",null]'


@rule("view-3", "view-4", "view-5", "view-6")
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


@rule("view-3", "view-4", "view-5", "view-6")
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


@rule("view-3", "view-4", "view-5", "view-6")
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


@rule("view-3", "view-4", "view-5", "view-6")
@pytest.mark.parametrize(
    ("grouping", "position"), [("", 200), ("[]", 201), ("[/a,b]", 204), ("[/a,$.b[0]]", 200)]
)
def test_malformed_groupings_are_refused_with_their_place(grouping: str, position: int) -> None:
    with pytest.raises(PathInvalid) as refused:
        Projection.parse("[/x]", 100, grouping, 200)
    assert refused.value.position == position


@rule("view-3", "view-4", "view-5", "view-6")
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


@rule("view-3", "view-4", "view-5", "view-6")
@given(st.lists(pieces, max_size=12).map("".join))
@examples(30)
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


@rule("view-3", "view-4", "view-5", "view-6")
@given(st.lists(values.map(lambda text: f'{{"g":1,"a":{text}}}'.encode()), min_size=1, max_size=5))
@examples(20)
def test_any_records_make_a_row(records: list[bytes]) -> None:
    json.loads(projected(EVERYTHING, *records))


def cells(*texts: str) -> list[Cell]:
    return [Cell(msgspec.json.decode(text), text.encode()) for text in texts]


@rule("view-5")
@pytest.mark.parametrize(
    ("aggregate", "texts", "result"),
    [
        ("COUNT", [], b"0"),
        ("COUNT", ["1", "1.0", '"x"'], b"3"),
        ("COUNT_DISTINCT", [], b"0"),
        ("COUNT_DISTINCT", ["1", "1.0", '"1"', "true", "2"], b"4"),
        ("SUM", ["1", "2"], b"3"),
        ("SUM", ["0.1", "0.2"], b"0.3"),
        ("SUM", ["1e16", "1", "-1e16"], b"1"),
        ("SUM", ["9223372036854775807", "9223372036854775807"], b"18446744073709551614"),
        ("SUM", ["1", '"2.5"', "true"], b"4.5"),
        ("SUM", ["1", '"x"'], b"null"),
        ("SUM", [], b"null"),
        ("AVG", ["1", "2"], b"1.5"),
        ("AVG", ["1", "1", "2"], b"1.3333333333333333"),
        ("AVG", ['"x"'], b"null"),
        ("MIN", ["2", "1.0", "1"], b"1.0"),
        ("MAX", ["2.50", "1", '"x"'], b"2.50"),
        ("MAX", ['"a"', '"b"'], b'"b"'),
        ("MIN", ["true"], b"null"),
        ("MIN", [], b"null"),
        ("FIRST", ["2.50", "1"], b"2.50"),
        ("LAST", ["2.50", "1.0"], b"1.0"),
        ("FIRST", [], b"null"),
        ("LAST", [], b"null"),
        ("STDDEV_SAMP", ["2", "4"], b"1.4142135623730951"),
        ("STDDEV_POP", ["2", "4"], b"1"),
        ("STDDEV_SAMP", ["2"], b"null"),
        ("STDDEV_POP", ["2"], b"0"),
        ("STDDEV_POP", ["0.1", "0.3"], b"0.1"),
        ("STDDEV_POP", ["1e16", "10000000000000002"], b"1"),
        ("STDDEV_POP", ["1e-300", "3e-300"], b"1e-300"),
        ("STDDEV_POP", ["1e300", "3e300"], b"1" + b"0" * 300),
        ("STDDEV_POP", ["1", '"x"'], b"null"),
    ],
)
def test_an_aggregate(aggregate: str, texts: list[str], result: bytes) -> None:
    assert aggregated(Aggregate(aggregate), cells(*texts)) == result


@rule("view-5")
@pytest.mark.parametrize("aggregate", ["SUM", "AVG", "STDDEV_POP", "STDDEV_SAMP"])
def test_infinity_and_nan_are_no_numbers(aggregate: str) -> None:
    for value in (math.inf, -math.inf, math.nan):
        assert aggregated(Aggregate(aggregate), [*cells("1", "2"), Cell(value, b"null")]) == b"null"


numbers = st.lists(st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9), min_size=2, max_size=4)


@rule("view-5")
@given(numbers)
@examples(15)
def test_order_cannot_be_seen_in_what_is_calculated(values: list[float]) -> None:
    for name in ("SUM", "AVG", "STDDEV_POP", "STDDEV_SAMP"):
        results = {
            aggregated(
                Aggregate(name), cells(*(msgspec.json.encode(each).decode() for each in order))
            )
            for order in itertools.permutations(values)
        }
        assert len(results) == 1


@rule("view-5")
@given(st.lists(st.integers(-1_000, 1_000), min_size=2, max_size=20))
@examples(15)
def test_deviations_are_those_of_the_textbook(values: list[int]) -> None:
    found = cells(*map(str, values))
    population = msgspec.json.decode(aggregated(Aggregate.STDDEV_POP, found))
    sample = msgspec.json.decode(aggregated(Aggregate.STDDEV_SAMP, found))
    assert population == pytest.approx(statistics.pstdev(values), rel=1e-12)
    assert sample == pytest.approx(statistics.stdev(values), rel=1e-12)
