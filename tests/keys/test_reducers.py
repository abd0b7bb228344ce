"""Reducers merge messages into one; their monoids join in any grouping."""

from __future__ import annotations

import itertools
import json
import pickle
from functools import reduce as fold

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.errors import PathInvalid
from tidegate.keys.reducers import COLUMNS_MAX, MONOIDS, Merged, Reduce, Reducer, join
from tidegate.keys.spec import KeySpec


def merged(spec: str, *payloads: bytes) -> bytes:
    return fold(Merged.join, map(Reduce.parse(spec).begin, payloads)).payload()


def of_values(reducer: str, *values: str) -> bytes:
    """What a field `a` becomes in messages that have these values; "" is a message without it."""
    payloads = [f'{{"a":{value}}}'.encode() if value else b"{}" for value in values]
    return merged(f"[/a:{reducer}]", *payloads)


@rule("merge-7")
@pytest.mark.parametrize(
    ("reducer", "values", "payload"),
    [
        ("last", ["1", "2.0"], b'{"a":2.0}'),
        ("last", ["1", ""], b"{}"),
        ("last", ["1", "null"], b'{"a":null}'),
        ("first", ["1.50", "2"], b'{"a":1.50}'),
        ("first", ["", "null", "2", "3"], b'{"a":2}'),
        ("sum", ["1", "2", "3"], b'{"a":6}'),
        ("sum", ["0.1", "0.2"], b'{"a":0.3}'),
        ("sum", ["1e16", "1", "-1e16"], b'{"a":1}'),
        ("sum", ["9007199254740993", "9007199254740993"], b'{"a":18014398509481986}'),
        ("sum", ["1", '"2"', "true", "null", "[3]", "1e999", "4"], b'{"a":5}'),
        ("sum", ["1", "2", ""], b'{"a":3}'),
        ("sum", ["1e308", "1e308"], b'{"a":null}'),
        ("sum", ["1e308", "1e308", "-1e308", "-1e308", "7"], b'{"a":7}'),
        ("avg", ["1e308", "1e308"], b'{"a":1' + b"0" * 308 + b"}"),
        ("sum", ["1.50"], b'{"a":1.5}'),
        ("sum", ["null", '"x"'], b"{}"),
        ("min", ["2", "1.0", "1", "3"], b'{"a":1.0}'),
        ("max", ["2", "3.00", "3"], b'{"a":3.00}'),
        ("max", ["9007199254740993", "9007199254740992"], b'{"a":9007199254740993}'),
        ("max", ["1", "1e999", "2"], b'{"a":1e999}'),
        ("max", ['"b"', '"a"'], b'{"a":"b"}'),
        ("min", ['"b"', '"\\u0061"'], b'{"a":"\\u0061"}'),
        ("max", ['"b"', "1"], b'{"a":1}'),
        ("max", ["true", "{}", "[9]"], b"{}"),
        ("count", ["1", '"x"', "null", "", "[]", "{}"], b'{"a":4}'),
        ("count", ["", "null"], b"{}"),
        ("avg", ["1", "2"], b'{"a":1.5}'),
        ("avg", ["1", "1", "2"], b'{"a":1.3333333333333333}'),
        ("avg", ["3", "3", '"x"'], b'{"a":3}'),
        ("append", ["1", "[2.0,3]", "[]", "[[4]]", "null", '"x"'], b'{"a":[1,2.0,3,[4],"x"]}'),
        ("append", ["[]", ""], b'{"a":[]}'),
        ("append", ["", ""], b"{}"),
        ("union", ["1", "[1.0,2]", '"1"', "true", "[2,3]", "3"], b'{"a":[1,2,"1",true,3]}'),
        ("union", ['{"x":1,"y":2}', '{"y":2,"x":1.0}'], b'{"a":[{"x":1,"y":2}]}'),
    ],
)
def test_a_field_is_reduced_in_publication_order(
    reducer: str, values: list[str], payload: bytes
) -> None:
    assert of_values(reducer, *values) == payload


@rule("merge-7")
@pytest.mark.parametrize(
    ("spec", "payloads", "payload"),
    [
        # fields not named are the last message's, absent ones too
        ("[/q:sum]", [b'{"q":1,"p":5.0,"x":1}', b'{"p":6.0,"q":2}'], b'{"p":6.0,"q":3}'),
        ("[/q:sum]", [b'{"q":1,"p":5}', b'{"p":6}'], b'{"p":6,"q":1}'),
        # several results of one field
        (
            "[/px:last,/px:max@hi,/px:min@lo,/px:first@open]",
            [b'{"px":2.0}', b'{"px":3.0}', b'{"px":1.0}'],
            b'{"px":1.0,"hi":3.0,"lo":1.0,"open":2.0}',
        ),
        ("[/px:max@hi]", [b'{"px":2,"hi":9}', b'{"px":1,"hi":9}'], b'{"px":1,"hi":2}'),
        ("[/px:max@hi]", [b'{"hi":9}', b'{"hi":9}'], b"{}"),
        # fields inside objects
        ("[/a/q:sum]", [b'{"a":{"q":1}}', b'{"a":{"q":2,"r":0}}'], b'{"a":{"q":3,"r":0}}'),
        ("[/a/q:sum]", [b'{"a":{"q":1}}', b'{"a":7}'], b'{"a":{"q":1}}'),
        ("[/a/q:sum]", [b'{"a":{"q":1}}', b"{}"], b'{"a":{"q":1}}'),
        ("[/a/q:sum]", [b"{}", b'{"a":7}'], b'{"a":7}'),
        ("[$.a[0]:sum@total]", [b'{"a":[1]}', b'{"a":[2,9]}'], b'{"a":[2,9],"total":3}'),
        # rule merge-7: messages that are no objects
        ("[/q:sum]", [b'{"q":1}', b"5"], b"5"),
        ("[/q:sum]", [b'{"q":1}', b"5", b'{"q":2}'], b'{"q":3}'),
        ("[/q:sum]", [b"[1]", b"[2]"], b"[2]"),
        # nothing but the last
        ("[/q:last]", [b'{"q":1}', b' { "q" : 2 } '], b' { "q" : 2 } '),
    ],
)
def test_messages_become_one(spec: str, payloads: list[bytes], payload: bytes) -> None:
    """Rule merge-7, and those that the lines name."""
    assert merged(spec, *payloads) == payload


SPEC = Reduce.parse(
    "[/a:sum,/a:avg@avg,/a:min@min,/a:max@max,/a:first@first,/a:last@last,/a:count@count,"
    "/a:append@append,/a:union@union,/b/c:sum]"
)
fields = st.sampled_from(["1", "2.5", "0.1", "1e16", "-1e16", '"x"', "null", "[1,2]", "true"])
messages = st.one_of(
    fields.map(lambda text: f'{{"a":{text}}}'.encode()),
    fields.map(lambda text: f'{{"b":{{"c":{text}}},"z":0}}'.encode()),
    st.sampled_from([b"{}", b"5", b"null", b'[{"a":1}]', b'{"b":5}']),
)


@rule("merge-7")
@given(st.lists(messages, min_size=1, max_size=8))
@examples(25)
def test_messages_merged_in_any_groups_and_saved_between_give_the_same(
    payloads: list[bytes],
) -> None:
    singles = [SPEC.begin(payload) for payload in payloads]
    in_a_row = fold(Merged.join, singles)
    for cut in range(1, len(singles)):
        left = fold(Merged.join, singles[:cut])
        right = fold(Merged.join, singles[cut:])
        assert left.join(right) == in_a_row
        assert SPEC.loaded(left.saved()).join(SPEC.loaded(right.saved())) == in_a_row
    json.loads(in_a_row.payload())


@rule("merge-7")
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5))
@examples(12)
def test_the_order_of_a_sum_cannot_be_seen(values: list[float]) -> None:
    sums = {of_values("sum", *map(json.dumps, order)) for order in itertools.permutations(values)}
    assert len(sums) == 1


@rule("merge-7")
def test_what_was_merged_stays_as_it_is() -> None:
    reduce = Reduce.parse("[/a:append,/a:union@u]")
    begun = reduce.begin(b'{"a":[1]}')
    begun.join(reduce.begin(b'{"a":[2]}'))
    assert begun.payload() == b'{"a":[1],"u":[1]}'


@rule("merge-7")
def test_reducers_are_a_value() -> None:
    reduce = Reduce.parse("[ /px:last , $.px:max@hi,/a:b:sum,/px:min@lo ]")
    assert str(reduce) == "[/px:last,/px:max@hi,/a:b:sum,/px:min@lo]"
    assert Reduce.parse(str(reduce)) == reduce
    assert hash(Reduce.parse(str(reduce))) == hash(reduce)
    assert pickle.loads(pickle.dumps(reduce)) == reduce
    assert Reduce.of({"/qty": "sum", "/px": "max@hi"}) == Reduce.parse("[/qty:sum,/px:max@hi]")
    assert Reduce.parse("[/px:max@px]") == Reduce.parse("[/px:max]")
    assert Reduce.of({}) == Reduce()


@rule("merge-7")
@pytest.mark.parametrize(
    ("spec", "is_plain"),
    [("[/a:last,/b/c:last]", True), ("[/a:last@b]", False), ("[/a:last,/b:sum]", False)],
)
def test_last_alone_is_replacement(spec: str, is_plain: bool) -> None:
    assert Reduce.parse(spec).is_plain is is_plain
    assert Reduce().is_plain


@rule("merge-7")
@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("/a:sum", 4),
        ("[/a:sum", 4),
        ("[]", 5),
        ("[/a]", 5),
        ("[/a:sum,]", 12),
        ("[/a:total]", 8),
        ("[/a:SUM]", 8),
        ("[/a:]", 8),
        ("[/a:sum, /b:sum@]", 20),
        ("[/a:sum@x y]", 12),
        ("[a:sum]", 5),
        ("[/a/:sum]", 7),
        ("[$.a[0]:sum]", 5),
        ("[/a:sum,/a:max]", 12),
        ("[/a:sum@x,/b:sum@x]", 14),
        ("[/a:sum,/a/b:max]", 12),
        ("[/a/b:sum,/c:max@a]", 14),
    ],
)
def test_malformed_reducers_are_refused_with_their_place(text: str, position: int) -> None:
    with pytest.raises(PathInvalid) as refused:
        Reduce.parse(text, 4)
    assert refused.value.position == position


@rule("merge-7")
def test_there_are_at_most_64_reducers() -> None:
    fields = [f"/f{number}" for number in range(COLUMNS_MAX + 1)]
    assert len(Reduce.of(dict.fromkeys(fields[:-1], "sum")).columns) == COLUMNS_MAX
    with pytest.raises(PathInvalid, match="64"):
        Reduce.of(dict.fromkeys(fields, "sum"))


@rule("merge-7")
@rule("merge-6")
@pytest.mark.parametrize(
    ("reduce", "writes"),
    [
        ("[/id:sum]", True),
        ("[/id:last]", False),
        ("[/px:max@id]", True),
        ("[/px:max@hi]", False),
        ("[/a/b:sum]", True),
        ("[/a/b/c:sum]", True),
        ("[/a:count]", True),
        ("[/a/d:sum]", False),
    ],
)
def test_whether_a_field_of_the_key_is_written_to(reduce: str, writes: bool) -> None:
    fields = KeySpec.parse("[/id,/a/b]").paths
    assert Reduce.parse(reduce).writes_to(fields) is writes


TEXTS = (
    *(b"null", b"true", b"0", b"1", b"1.0", b"0.1", b"1e16", b"-1e16", b"1e400", b"1e999999999999"),
    *(b'"a"', b'"b"', b'""', b"[]", b"[1,2]", b'[null,"a"]', b'{"a":1}', b"0.3333333333"),
)
texts = st.none() | st.sampled_from(TEXTS)


@rule("merge-7")
@pytest.mark.parametrize("reducer", Reducer)
@given(one=texts, two=texts, three=texts)
@examples(20)
def test_grouping_makes_no_difference(
    reducer: Reducer, one: bytes | None, two: bytes | None, three: bytes | None
) -> None:
    monoid = MONOIDS[reducer]
    a, b, c = map(monoid.lift, (one, two, three))
    assert join(monoid, join(monoid, a, b), c) == join(monoid, a, join(monoid, b, c))


@rule("merge-7")
@pytest.mark.parametrize("reducer", [reducer for reducer in Reducer if reducer is not Reducer.LAST])
def test_a_missing_field_and_null_are_nothing(reducer: Reducer) -> None:
    monoid = MONOIDS[reducer]
    assert monoid.lift(None) is None
    assert monoid.lift(b"null") is None
    state = monoid.lift(b"1")
    assert join(monoid, None, state) == join(monoid, state, None) == state


@rule("merge-7")
def test_the_last_word_may_be_nothing() -> None:
    monoid = MONOIDS[Reducer.LAST]
    assert monoid.show(join(monoid, monoid.lift(b"1"), monoid.lift(None))) is None


@rule("merge-7")
@pytest.mark.parametrize("reducer", Reducer)
@given(one=texts, two=texts)
@examples(20)
def test_a_state_that_was_saved_goes_on(
    reducer: Reducer, one: bytes | None, two: bytes | None
) -> None:
    monoid = MONOIDS[reducer]
    state = join(monoid, monoid.lift(one), monoid.lift(two))
    if state is not None:
        assert monoid.load(monoid.save(state)) == state
