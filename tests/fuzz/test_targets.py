"""A few inputs for every target, and the references that targets compare with."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tests.fuzz import documents
from tests.fuzz.__main__ import targets
from tests.fuzz.reference import Refused, events, patched, strict_json
from tests.fuzz.target import Target, run
from tests.support.profiles import SEED

INPUTS = 50
NIGHTLY_S = 5.0
"""Of CPU for each target; `python -m tests.fuzz` runs for longer."""


@pytest.mark.parametrize("target", targets(), ids=lambda it: it.name)
def test_a_few_inputs_find_nothing(target: Target) -> None:
    """Always the same ones."""
    outcome = run(replace(target, cpu_s_max=math.inf), 7, executions=INPUTS)
    assert not outcome.findings, "\n".join(map(str, outcome.findings))


@pytest.mark.nightly
@pytest.mark.parametrize("target", targets(), ids=lambda it: it.name)
def test_a_short_run_finds_nothing(target: Target) -> None:
    outcome = run(target, SEED, seconds=NIGHTLY_S)
    assert not outcome.findings, "\n".join(map(str, outcome.findings))
    assert outcome.executions > 100
    assert outcome.accepted > 0


@pytest.mark.parametrize("number", [b"0.0e1%024d", b"-0e1%024d", b"1e-1%024d", b"0.01e-1%024d"])
def test_a_number_whose_exponent_is_longer_than_a_decimals_is_compared(number: bytes) -> None:
    assert documents.check_text(number % 0)


# The references


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1}',
        "[]",
        '"\\ud83d\\ude00"',
        " 1 ",
        "-0.0e+1",
        "[" * 64 + "]" * 64,
        '{"":null}',
        "true",
    ],
)
def test_the_reference_takes_json(text: str) -> None:
    assert json.dumps(strict_json(text.encode())) is not None


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[1,]", b"01", b"+1", b"NaN", b"1 2", b"'a'", b'"\x01"', b'"\\ud800"', b'"\xff"',
     b'{"a" 1}', b"{a:1}", b"\xef\xbb\xbf1", b"[" * 65 + b"]" * 65, b"1.", b".5", b'"\\x"', b"nul"],
)  # fmt: skip
def test_the_reference_refuses_what_is_none(text: bytes) -> None:
    with pytest.raises(Refused):
        strict_json(text)


def test_the_reference_patches_as_the_standard_s_own_examples() -> None:
    """RFC 7396, appendix A."""
    for original, patch, result in (
        ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}), ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        (["a", "b"], ["c", "d"], ["c", "d"]), ({"a": "foo"}, None, None), ([1, 2], {"a": "b"},
        {"a": "b"}), ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ):  # fmt: skip
        assert patched(original, patch) == result


def test_the_reference_reads_streams_as_the_standard_s_own_examples() -> None:
    """WHATWG HTML, 9.2.6."""
    stream = (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third\n\n"
    )
    assert events(stream) == [
        ("message", "first event", "1"), ("message", "second event", ""), ("message", " third", ""),
    ]  # fmt: skip
    assert events(b"data\n\ndata\ndata\n\ndata:") == [("message", "", ""), ("message", "\n", "")]
    assert events(b"data:test\n\ndata: test\n\n") == [("message", "test", "")] * 2
