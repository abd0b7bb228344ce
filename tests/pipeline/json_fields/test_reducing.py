"""Columns of states reduce messages as `keys/` does one by one, however they are grouped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as folded
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.reducers import Reduce, Reducer
from tidegate.pipeline.intervals import Interval, Pace, one_run_each
from tidegate.pipeline.json_fields.field_columns import FieldColumn, find_fields
from tidegate.pipeline.json_fields.reducing import Combined, Folded
from tidegate.pipeline.json_fields.states import (
    ChosenTexts,
    States,
    Totals,
    states_of,
    states_of_saved,
)

REDUCERS = [
    "[/v:sum,/v:max@hi,/v:first@open,/v:count@n]",
    "[/v:min@lo,/v:avg@mean,/v:last@to,/w:sum]",
    "[/v:max,/w:avg,/z:first]",
    "[/v:last,/w:max@v2,/v:append@all,/w:union@some]",
    "[/w/x:sum@deep,/w/0:max@place,/v:sum@a]",
    "[/o/v:sum,/w:count@é]",
]
plain = st.sampled_from(
    ["1", "2", "-3", "0", "1.5", "1.50", "0.1", "0.25", "-0.0", "1e2", "13.8", "123456789012"]
)
odd = st.sampled_from(
    [
        "null",
        '"x"',
        '"5"',
        "true",
        "[1,2]",
        '{"x":1}',
        '{ "x" : 2 }',
        "1e-999",
        "0e7",
        "1E-7",
        "9007199254740993",
        "0.1000000000000000055",
        "1e300",
        "1e999",
        "1" * 30,
        '"a,\\"v\\":1"',
        "123456789012345",
        "-999999999999999",
        "99999999999.9999",
        "0.0000000000001",
    ]
)
tight = st.sampled_from(
    ['{{"v":{},"w":{}}}', '{{"w":{1},"v":{0}}}', '{{"k":1,"v":{}}}', '{{"k":"a"}}']
)
loose = st.sampled_from(
    [
        '{{ "v": {}, "w": {} }}',
        '{{"v":{},"v":{}}}',
        '{{"\\u0076":{},"w":{}}}',
        "{{}}",
        "7",
        "[{}]",
        '{{"s":"a b","v":{}}}',
        '{{"s":"\\"","v":{}}}',
        '{{"v" :{}}}',
        '{{"o":{{"v":{}}},"w":{}}}',
    ]
)


def bodies_of(values: st.SearchStrategy[str]) -> st.SearchStrategy[list[str | None]]:
    made = st.builds(str.format, st.one_of(tight, tight, loose), values, values)
    return st.lists(st.one_of(made, made, made, st.none()), max_size=8)


messages = st.one_of(
    bodies_of(plain),
    bodies_of(st.one_of(plain, odd)),
    st.lists(st.builds(str.format, tight, plain, plain), max_size=8),
)


def shown(rules: str, bodies: Sequence[str | None], cuts: Sequence[int], keys: int) -> list[object]:
    """What columns make of the messages of some keys, in blocks; each key's rows are held."""
    kept, codes = None, np.zeros(0, np.int64)
    of_rules = Folded(Reduce.parse(rules))
    bounds = [0, *sorted(min(cut, len(bodies)) for cut in cuts), len(bodies)]
    for low, high in pairwise(bounds):
        texts = [None if body is None else body.encode() for body in bodies[low:high]]
        new = of_rules.begin(pa.array(texts, pa.binary()))
        codes = np.append(codes, np.arange(low, high) % keys).astype(np.int64)
        kept = new if kept is None else of_rules.joined(kept, new)
        if not len(codes):
            continue
        runs = one_run_each(Interval(1, Pace.KEY), codes, np.zeros(len(codes), np.int64))
        kept, _ = of_rules.of_runs(kept, runs)
        codes = codes[runs.order[runs.starts]]
        # Held rows may outlive the batch, and stand in another order then.
        back = np.arange(len(codes))[::-1]
        kept, codes = of_rules.loaded(of_rules.saved(of_rules.take(kept, back))), codes[back]
    assert kept is not None
    found: list[object] = of_rules.shown(kept).to_pylist()
    return [found[place] for place in np.argsort(codes)]


def expected(rules: str, bodies: Sequence[str | None], keys: int) -> list[object]:
    """The same by `keys/`, one message after the other."""
    found: list[object] = []
    of_rules = Reduce.parse(rules)
    for key in range(min(keys, len(bodies))):
        parts = [of_rules.begin(body.encode()) for body in bodies[key::keys] if body is not None]
        merged = folded(lambda one, later: one.join(later), parts) if parts else None
        found.append(merged and merged.payload())
    return found


@rule("merge-6")
@pytest.mark.parametrize("rules", REDUCERS)
@examples(10)
@given(messages, st.lists(st.integers(0, 8), max_size=3), st.integers(1, 3))
@example(['{"v":1}', '{"v":9007199254740993}', '{"v":2}'], [1, 2], 1)  # odd, and plain again
@example(['{"v":1.50}', '{"v":1.5}', '{"v":1e-999}', '{"v":0}'], [], 1)  # ties, and no zero
@example(['{"v":999999999999999}', '{"v":0.000001}'], [1], 1)  # beyond 64 bits of one scale
@example(['{"v":0.1}', '{"v":0.1000000000000000055}'], [], 1)  # one double, two numbers
@example(['{"v":1}', None, '{"w":2}'], [1], 2)
@example(['{"v":null,"w":null}', '{"k":{},"v":null}'], [], 2)  # results remove all fields
def test_columns_reduce_as_one_by_one(
    rules: str, bodies: list[str | None], cuts: list[int], keys: int
) -> None:
    assert shown(rules, bodies, cuts, keys) == expected(rules, bodies, keys)


@rule("merge-6")
def test_very_many_large_sums_do_not_overflow() -> None:
    bodies = ['{"v":999999999999999}'] * 12_000
    rules = "[/v:sum,/v:avg@mean,/v:count@n]"
    assert shown(rules, bodies, [6_000], 1) == expected(rules, bodies, 1)


@pytest.mark.parametrize("rules", REDUCERS)
def test_messages_join_a_table_that_held_nothing(rules: str) -> None:
    of_rules = Folded(Reduce.parse(rules))
    nothing = of_rules.loaded(of_rules.saved(of_rules.begin(pa.array([], pa.binary()))))
    body = '{"v":2,"w":{"x":7}}'
    found = of_rules.joined(nothing, of_rules.begin(pa.array([body.encode()])))
    assert of_rules.shown(found).to_pylist() == expected(rules, [body], 1)


def texts(*values: bytes | None) -> FieldColumn:
    return FieldColumn.of_array(pa.array(values, pa.binary()))


@pytest.mark.parametrize(
    ("reducer", "values", "kind"),
    [
        (Reducer.SUM, [b"1", b"2.25", None, b"null"], Totals),
        (Reducer.AVG, [b"13.83"], Totals),
        (Reducer.COUNT, [b"[1]", b"null"], Totals),
        (Reducer.MAX, [b"13.83", b"null", b"1e5"], ChosenTexts),
        (Reducer.FIRST, [b'"x"', b"null"], ChosenTexts),
        (Reducer.LAST, [b'"x"', b"{}"], ChosenTexts),
        (Reducer.SUM, [b"1", b"1e-999"], States),
        (Reducer.SUM, [b"0.00000000001"], States),
        (Reducer.MIN, [b"1", b'"x"'], States),
        (Reducer.MAX, [b"9007199254740993"], States),
        (Reducer.UNION, [b"1"], States),
    ],
)
def test_plain_values_are_columns(
    reducer: Reducer, values: list[bytes | None], kind: type[object]
) -> None:
    found = states_of(reducer, texts(*values))
    assert type(found) is kind
    is_put = [True] * len(values)
    again = states_of_saved(reducer, found.saved(is_put))
    # What is odd about a text may be gone from its state, such as an exponent.
    assert kind is States or type(again) is kind
    assert again.saved(is_put) == found.saved(is_put)
    assert again.shown().to_pylist() == found.shown().to_pylist()


def test_columns_again_after_an_odd_value() -> None:
    of_rules = Folded(Reduce.parse("[/v:max,/v:sum@a]"))

    def block(*bodies: bytes) -> Combined:
        return of_rules.begin(pa.array(bodies, pa.binary()))

    odd_block = of_rules.joined(block(b'{"v":1}'), block(b'{"v":"x"}', b'{"v":2}'))
    assert [type(column) for column in odd_block.columns] == [States, States]
    runs = one_run_each(Interval(1, Pace.KEY), np.array([0, 0, 0]), np.zeros(3, np.int64))
    kept, _ = of_rules.of_runs(odd_block, runs)
    later = of_rules.joined(kept, block(b'{"v":3}'))
    # The sum has forgotten the word; a maximum needs it while no number came.
    assert [type(column) for column in later.columns] == [States, Totals]


@pytest.mark.parametrize("rules", ["[/v:max]", "[/v:max,/w:sum]", "[/o/v:sum]"])
@pytest.mark.parametrize("known", [["v"], ["u"], ["u", "v", "w"]])
def test_members_that_are_known_are_no_promise_of_all(rules: str, known: list[str]) -> None:
    """A filter reads others than reducers do."""
    bodies = pa.array([b'{"u":1,"v":2,"w":3,"o":{"v":4}}', None], pa.binary())
    of_rules = Folded(Reduce.parse(rules))
    found = of_rules.begin(bodies, find_fields(bodies, known))
    assert of_rules.shown(found).to_pylist() == of_rules.shown(of_rules.begin(bodies)).to_pylist()
