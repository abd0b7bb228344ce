"""CSV: cells that no spreadsheet runs, and that give each text back."""

from __future__ import annotations

import json

import pytest

from tests.app.http.formats.reading import body_of, csv_lines, frames
from tests.support.rules import rule

FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "'=1",
    "'",
    "=cmd|' /C calc'!A0",
    '=HYPERLINK("http://evil.example","x")',
    "\uff1d1+1",
    "\uff0b1",
    "\uff0d1",
    "\uff20a",
    '-1"',
]
PLAIN = ["", "a", " =1", "a=1", 'say "hi"', "a,b", "line\r\nend", "007", "é", "\uff1c", "1", "null"]


def cells_of(value: object, name: str = "n") -> list[list[tuple[str, bool]]]:
    text = json.dumps({name: value}).encode()
    return list(csv_lines(body_of("csv", frames([text])).decode()))


@rule("topic-19")
@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_begins_a_formula_is_inert(text: str) -> None:
    assert cells_of(text)[1] == [("'" + text, True)]
    assert cells_of(1, name=text)[0] == [("'" + text, True)]


@pytest.mark.parametrize("text", PLAIN)
def test_any_other_text_is_as_published(text: str) -> None:
    assert cells_of(text)[1] == [(text, True)]
    assert cells_of(1, name=text)[0] == [(text, True)]


@rule("topic-19")
@pytest.mark.parametrize("number", ["-1", "-0.5", "1e5", "12345678901234567890.10", "0", "-0.0"])
def test_a_number_stays_the_number_that_was_published(number: str) -> None:
    rows = frames([b'{"n":%b}' % number.encode()])
    assert body_of("csv", rows) == b'"n"\r\n%b\r\n' % number.encode()


def test_cells_by_type() -> None:
    texts = [
        rb'{"a":null,"b":true,"c":{"x":[1.50,"\u003d"]},"d":"\u003d1"}',
        b'{"e":[],"a":"","b":false}',
        b'["=1"]',
    ]
    assert body_of("csv", frames(texts)).decode().split("\r\n") == [
        '"a","b","c","d","e","value"',
        r',true,"{""x"":[1.50,""\u003d""]}","' + "'=1" + '",,',
        '"",false,,,"[]",',
        ',,,,,"[""=1""]"',
        "",
    ]


def test_a_line_with_nothing_in_it_is_not_empty() -> None:
    """Readers skip empty lines, and with it the record."""
    assert body_of("csv", frames([b'{"n":1}', b"{}"])) == b'"n"\r\n1\r\n""\r\n'
    assert body_of("csv", frames([b"{}"])) == b""
