"""No filter blocks the gateway: by what an evaluation may read, and once by the clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import thread_time_ns
from typing import Any

import pytest

from tests.keys.filter.slowest import FILTERS, MESSAGES, any_of
from tests.support.rules import rule
from tidegate.keys.filter import Expression, Filter, fields, patterns
from tidegate.keys.filter.compiling import compile_test
from tidegate.keys.filter.patterns import Allowance, compiled
from tidegate.keys.filter.values import opened

# An evaluation is timed relative to a loop, which took this long where the promise was measured.
LOOP_NS = 950_000
PROMISE_LOOPS = 5_000_000 / LOOP_NS


def allowed(text: str) -> Allowance:
    """The allowance of a filter's places."""
    return Allowance.of(Filter.parse(text).tree)


@rule("filter-4")
@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("TRUE", 12_000),
        ("/a = 1", 12_000),
        ("/a = 1 OR /a = 1", 12_000),
        ("/a = 1 OR /a = 2", 6_000),
        ("/a < /b", 6_000),
        ("/a = /a", 12_000),
        ("ARRAY_SUM(/a) + ARRAY_MAX(/a) + ARRAY_MIN(/a) = 1", 4_000),
        ("/a BEGINS WITH ('1', '2', '3', '4', '5', '6', '7', '8', '9')", 6_000),
    ],
)
def test_places_share_the_elements_of_arrays(text: str, elements: int) -> None:
    assert allowed(text).elements == elements


@rule("filter-4")
def test_texts_and_patterns_are_shared_too() -> None:
    assert allowed("UPPER(/a) = LOWER(/a)").text_bytes == 8_192
    many = allowed(any_of("INSTR(/a, '#') = REPLACE(/a, '#', '')", 10))
    assert (many.text_bytes, many.sought_bytes) == (2_000, 5_000)
    one, two = allowed("/a LIKE 'x'"), allowed("/a LIKE 'x' OR /b LIKE 'x'")
    assert (two.pattern_bytes, two.pattern_texts) == (one.pattern_bytes // 2, 500)


class Meter:
    """Counts what an evaluation reads, by wrapping the functions that read it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.elements = 0
        self.pattern_work = 0
        monkeypatch.setattr(fields, "opened", self._opened)
        for name in ("finder", "lines_finder"):
            monkeypatch.setattr(patterns, name, self._metered(getattr(patterns, name)))

    def _opened(self, items: list[Any], elements_max: int) -> list[Any] | None:
        found = opened(items, elements_max)
        self.elements += elements_max if found is None else len(found)
        return found

    def _metered(
        self, finder: Callable[[str], Callable[[bytes], bool]]
    ) -> Callable[[str], Callable[[bytes], bool]]:
        def made(pattern: str) -> Callable[[bytes], bool]:
            search, instructions = finder(pattern), compiled(pattern).programsize

            def metered(text: bytes) -> bool:
                self.pattern_work += len(text) * instructions
                return search(text)

            return metered

        return made


@rule("filter-4")
@pytest.mark.parametrize("message", MESSAGES)
def test_all_places_together_read_no_more_than_the_totals(
    monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    """Twice the total: an array may be gathered before the gathered elements are read."""
    for text in FILTERS:
        meter = Meter(monkeypatch)
        compile_test(Filter.parse(text).tree, "orders")(MESSAGES[message], "[1]")
        assert meter.elements <= 2 * 12_000, text
        assert meter.pattern_work <= 750_000, text
        monkeypatch.undo()


@rule("filter-4")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/l = 9999", True),
        ("/l IN (-1, 9999)", True),
        ("/s LIKE '^k9999$'", True),
        ("/s LIKE '9999'", True),
        ("/s LIKE '99999'", False),
        ("/s ENDS WITH ('9999')", True),
        ("ARRAY_SUM(/l)", 49_995_000),
        ("/l[9999]", 9_999),
    ],
)
def test_a_plain_filter_on_10000_elements_has_a_value(text: str, value: object) -> None:
    """The bounds of rule filter-4 leave room for sensible filters."""
    message = {"l": list(range(10_000)), "s": [f"k{index}" for index in range(10_000)]}
    assert Expression.parse(text).evaluator()(json.dumps(message).encode()) == value


@rule("filter-4")
@pytest.mark.parametrize(
    ("text", "elements", "value"),
    [
        ("/l = 1", 12_000, True),
        ("/l = 1", 12_001, None),
        ("/l = 1 AND /l > 0", 6_000, True),
        ("/l = 1 AND /l > 0", 6_001, None),
        ("/l[0] = 1", 6_001, True),
        ("/l/b = 1", 12_001, None),
    ],
)
def test_an_array_over_the_allowance_is_null(text: str, elements: int, value: object) -> None:
    payload = b'{"l":[' + b",".join([b"1"] * elements) + b"]}"
    assert Expression.parse(text).evaluator()(payload) is value


@rule("filter-4")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/l = 7", None),
        ("/l = 'w3000'", True),
        ("/l = 'none'", False),
        ("/l[0] = 7", False),
        ("/l BETWEEN 1 AND 2", None),
        ("/l IN (7, 'none')", None),
        ("/l IN (7, 'w0')", True),
        ("ARRAY_SUM(/l)", None),
        ("ARRAY_MAX(/l)", "w999"),
        ("/l[1]", "w1"),
    ],
)
def test_too_many_strings_are_not_read_as_numbers(text: str, value: object) -> None:
    payload = json.dumps({"l": [f"w{index}" for index in range(3_001)]}).encode()
    assert Expression.parse(text).evaluator()(payload) == value


@rule("filter-4")
@pytest.mark.parametrize(("levels", "value"), [(3, True), (4, None)])
def test_arrays_inside_count_with_their_elements(levels: int, value: object) -> None:
    element = b"[" * (levels - 1) + b"1" + b"]" * (levels - 1)
    payload = b'{"l":[' + b",".join([element] * 4_000) + b"]}"
    assert Expression.parse("/l = 1").evaluator()(payload) is value


@rule("filter-4")
@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_a_message_of_brackets_has_no_fields(bracket: str) -> None:
    for brackets, value in ((11_998, 1), (11_999, None)):
        payload = f'{{"b":1,"l":[{",".join([bracket] * brackets)}]}}'.encode()
        assert Expression.parse("/b").evaluator()(payload) == value


@rule("filter-4")
@pytest.mark.nightly
@pytest.mark.parametrize("message", MESSAGES)
def test_no_filter_takes_5_ms(message: str) -> None:
    """Rule filter-4 by CPU time, relative to a loop that measures the speed of the core now."""
    slow: dict[str, float] = {}
    for text in FILTERS:
        matches = Filter.parse(text).matcher("orders")
        for repeats in (5, 100):
            took = min(_loops(matches, MESSAGES[message]) for _ in range(repeats))
            if took <= PROMISE_LOOPS:
                break
        else:
            slow[text[:60]] = took
    assert slow == {}


def _loops(matches: Callable[[bytes, str], bool], payload: bytes) -> float:
    """How many loops of LOOP_NS an evaluation takes."""
    began = thread_time_ns()
    sum(len(str(number)) for number in range(12_000))
    looped = thread_time_ns()
    matches(payload, "[1]")
    return (thread_time_ns() - looped) / (looped - began)
