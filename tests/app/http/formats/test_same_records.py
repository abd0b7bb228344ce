"""Every format holds the records of every other one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.http.formats.reading import FORMATS, Record, body_of, frames, read_back
from tests.support.profiles import examples
from tests.support.vectors import vectors
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json

INTEGERS = st.integers(-(2**64), 2**65).map(str)
DECIMALS = st.from_regex(r"-?(0|[1-9][0-9]{0,25})\.[0-9]{1,25}", fullmatch=True)
POWERS = st.from_regex(r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?[eE][-+]?[0-9]{1,3}", fullmatch=True)
HOSTILE = ["", "=1+1", "+1", "-1", "@a", "\t=1", "\r", "\n", "'=1", "\uff1d1", "1"]
TEXTS = st.one_of(st.text(), st.sampled_from(HOSTILE)).map(json.dumps)
NESTED = st.sampled_from(['{"b":[1.50,"\\u003d"]}', "[]", '[ 1, {"c" : 1e-400 } ]', '"[1]"'])


def is_sound(text: str) -> bool:
    """Whether a gateway takes a message."""
    try:
        check_json(text.encode())
    except JsonInvalid:
        return False
    return True


KINDS = [INTEGERS, DECIMALS, POWERS, TEXTS, NESTED, st.sampled_from(["true", "false"])]
VALUES = st.one_of(st.just("null"), *KINDS)
NAMES = st.one_of(st.text(max_size=3), st.sampled_from(["k", "px", "=x", "'=x", "value", ""]))


@st.composite
def columns(draw: st.DrawFn) -> list[bytes]:
    """Records with columns of one kind, or of several."""
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    kinds = [st.one_of(st.just("null"), draw(st.sampled_from([*KINDS, VALUES]))) for _ in names]
    records = []
    for _ in range(draw(st.integers(0, 8))):
        fields = [
            f"{json.dumps(name)}:{draw(kind)}"
            for name, kind in zip(names, kinds, strict=True)
            if draw(st.booleans())
        ]
        records.append("{" + ",".join(fields) + "}")
    return [each.encode() for each in records if is_sound(each)]


@examples(75)
@given(columns())
def test_every_format_holds_the_same_records(texts: list[bytes]) -> None:
    rows = frames(texts)
    expected = read_back("ndjson", body_of("ndjson", rows))
    names = {name for text in texts for name in json.loads(text)}
    for form in FORMATS:
        found = read_back(form, body_of(form, rows))
        wanted = expected
        if form in ("csv", "arrow") and not names:
            wanted = []  # without a column there are no rows
        if form == "csv" and len(names) == 1:  # a line of nothing but null is an empty text
            found, wanted = map(without_empty_texts, (found, wanted))
        assert (found, types_of(found)) == (wanted, types_of(wanted)), form


def types_of(records: list[Record]) -> list[dict[str, bool]]:
    """Which values are booleans: true is 1 to Python."""
    return [{name: isinstance(it, bool) for name, it in each.items()} for each in records]


def without_empty_texts(records: list[Record]) -> list[Record]:
    return [{name: it for name, it in each.items() if it != ""} for each in records]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("text", [it["text"] for it in vectors("numbers", "numbers")])
def test_every_number_is_exact(form: str, text: str) -> None:
    """Alone, beside an integer, beside a fraction, and as a value without an object."""
    for texts in (
        [f'{{"n":{text}}}'],
        [f'{{"n":{text}}}', '{"n":7}'],
        [f'{{"n":{text}}}', '{"n":0.25}', '{"k":1,"n":null}'],
        [text],
        [text, '{"n":1}'],
    ):
        rows = frames([each.encode() for each in texts])
        expected = read_back("ndjson", body_of("ndjson", rows))
        assert read_back(form, body_of(form, rows)) == expected


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_is_no_record(form: str) -> None:
    assert read_back(form, body_of(form, [])) == []


@pytest.mark.parametrize("form", FORMATS)
def test_many_records_come_whole(form: str) -> None:
    texts = [b'{"k":%d,"even":%b}' % (n, b"true" if n % 2 else b"null") for n in range(1_203)]
    found = read_back(form, body_of(form, frames(texts)))
    assert [it["k"] for it in found] == list(range(1_203))
    assert sum(it.get("even", False) for it in found) == 601
