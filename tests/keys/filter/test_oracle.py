"""The evaluator agrees with a second one, slow and plain, written from the rules alone.

Rules filter-1 to filter-16 and key-4: 5,000 pairs of a filter and a message, and 100,000 nightly,
each also as an expression and from its canonical spelling; and texts with something wrong are
refused by both or by neither.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.keys.filter.oracle import agreeing
from tests.keys.filter.oracle.agreeing import Shipped, agree, differ, expected, report
from tests.keys.filter.oracle.evaluating import Oracle
from tests.keys.filter.oracle.filters import FilterWriter
from tests.keys.filter.oracle.messages import random_message
from tests.keys.filter.oracle.mutating import mutated
from tests.keys.filter.oracle.reading import Refused
from tests.support.rules import rule

pytestmark = rule(
    "filter-1",
    "filter-2",
    "filter-3",
    "filter-4",
    "filter-5",
    "filter-6",
    "filter-7",
    "filter-8",
    "filter-9",
    "filter-10",
    "filter-11",
    "filter-12",
    "filter-13",
    "filter-14",
    "filter-15",
    "filter-16",
    "key-4",
)


MESSAGES = 10
SEARCHES = [pytest.param(seed, 50) for seed in range(10)]
SEARCHES += [pytest.param(seed, 500, marks=pytest.mark.nightly) for seed in range(20)]


def texts_of(random: Random, count: int) -> list[str]:
    """Filters, and some expressions."""
    writer = FilterWriter(random)
    return [writer.text() if random.random() < 0.6 else writer.expression() for _ in range(count)]


@pytest.mark.parametrize(("seed", "filters"), SEARCHES)
def test_every_filter_says_of_every_message_what_the_rules_say(seed: int, filters: int) -> None:
    random = Random(seed)
    messages = [random_message(random) for _ in range(filters)]
    matches = 0
    for text in texts_of(random, filters):
        oracle, shipped = expected(text), Shipped.parse(text)
        assert oracle, f"not a filter: {text!r}"
        assert shipped, f"refused: {text!r}"
        for payload in random.sample(messages, MESSAGES):
            agreed = agree(oracle, shipped, payload)
            assert agreed, report(text, payload)
            matches += shipped.matcher(payload, "")
    assert filters / 2 < matches < filters * MESSAGES / 2  # or the run says little


@pytest.mark.parametrize(("seed", "texts"), SEARCHES)
def test_a_text_with_something_wrong_is_refused_by_both_or_by_neither(
    seed: int, texts: int
) -> None:
    random = Random(seed)
    messages = [random_message(random) for _ in range(100)]
    refused = 0
    for text in texts_of(random, texts):
        try:
            wrong = mutated(random, text)
        except Refused:
            continue
        payload = random.choice(messages)
        refused += expected(wrong) is None
        differing = differ(wrong, payload)
        assert not differing, report(wrong, payload)
    assert refused > texts / 2


def nested(opening: str, depth: int, closing: str) -> str:
    return opening * depth + "/a" + closing * depth


@rule("filter-3", "filter-4")
@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        (nested("(", 32, ")"), nested("(", 33, ")")),
        (nested("NOT ", 32, ""), nested("NOT ", 33, "")),
        (nested("ABS(", 32, ")"), nested("ABS(", 33, ")")),
        (nested("- ", 32, ""), nested("- ", 33, "")),
        (" + ".join(["/a"] * 128), " + ".join(["/a"] * 129)),
        ("/a = 1" + " OR /a = 2" * 63, "/a = 1" + " OR /a = 2" * 64),
        (f"/a IN ({','.join('1' * 1_000)})", f"/a IN ({','.join('1' * 1_001)})"),
        (f"/a BEGINS WITH ({','.join('1' * 1_000)})", f"/a ENDS WITH ({','.join('1' * 1_001)})"),
        ("- " * 33 + "5", "- " * 34 + "5"),
        ("9" * 308, "9" * 309),
        ("0" * 400, "0" * 401),
        ("/a" * 64, "/a" * 65),
        ("18446744073709551615.0e288", "18446744073709551615.0e289"),
    ],
)
def test_limits_stand_where_the_rules_have_them(within: str, beyond: str) -> None:
    assert expected(within)
    assert not differ(within, b'{"a":[1,2]}')
    assert not expected(beyond)
    assert not Shipped.parse(beyond)


def test_a_disagreement_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    def agree_but_on_7(oracle: Oracle, shipped: Shipped, payload: bytes) -> bool:
        return b"7" not in payload or oracle.tree[0] != "and"

    monkeypatch.setattr(agreeing, "agree", agree_but_on_7)
    payload = b'{"x": [1, {"y": 7, "z": 1}], "w": 2}'
    text = "/x = 1 AND NOT /w = 2"
    assert agreeing.shrunk_message(text, payload) == b'{"x": [{"y": 7}]}'
    assert agreeing.shrunk_text(text, payload).split() == ["1", "AND", "2"]
