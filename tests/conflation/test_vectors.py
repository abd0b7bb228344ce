"""The engine and its options on the cases that gateway, clients and pipeline share."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver, batches
from tests.support.rules import rule
from tests.support.vectors import Vector, each_vector, vectors
from tidegate.conflation.frame import Frame, Row
from tidegate.conflation.options.grant import granted
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import Output
from tidegate.keys.errors import Refusal
from tidegate.keys.jsontext import are_equal

READ_BEFORE = {" /a", " 1s", "1s ", "none", "$["}
"""Texts with spaces around them, words and brackets, which the language of options reads itself."""
KEYED = '{"k":"a"'
"""How a record begins whose other members are a case's."""


def unread(file: str, name: str) -> list[Vector]:
    return [vector for vector in vectors(file, name) if vector["text"] not in READ_BEFORE]


def published(driver: ManualDriver, offset: int, payload: str, key: str = '["a"]') -> None:
    frame = Frame(offset, payload.encode(), key)
    driver.engine.publish("px", [frame], driver.now)


def rows_of(outputs: list[Output]) -> list[Frame]:
    return [frame for batch in batches(outputs) for frame in batch.frames]


def refusal_of(options: str) -> Refusal:
    with pytest.raises(Refusal) as refused:
        Options.parse(options)
    return refused.value


@rule("option-8")
@each_vector("paths", "paths")
def test_a_conflation_key_is_granted_in_the_one_spelling(vector: Vector) -> None:
    driver = ManualDriver()
    driver.topic(key="")
    request = driver.request(f"conflation=1s,conflation_key=[{vector['text']}]")
    assert granted(request) == f"conflation=1s,conflation_key=[{vector['spelling']}],pace=batch"


@pytest.mark.parametrize("vector", unread("paths", "refused"))
def test_options_with_no_path_are_refused_with_its_place(vector: Vector) -> None:
    before = "conflation=1s,conflation_key=[/k,"
    refused = refusal_of(f"{before}{vector['text']}]")
    assert refused.position == len(before) + vector["position"]


@rule("option-8")
@each_vector("durations", "intervals")
def test_an_interval_is_granted_in_its_largest_unit(vector: Vector) -> None:
    driver = ManualDriver()
    driver.topic()
    request = driver.request(f"conflation={vector['text']}")
    assert granted(request).startswith(f"conflation={vector['granted']},")


@pytest.mark.parametrize(
    "vector",
    [
        *unread("durations", "refused"),
        *vectors("durations", "intervals_refused"),
    ],
)
def test_options_with_no_interval_are_refused_where_it_begins(vector: Vector) -> None:
    refused = refusal_of(f"conflation={vector['text']}")
    assert (refused.code, refused.position) == ("options-invalid", len("conflation="))


@rule("view-1", "view-7")
@each_vector("order", "orders")
def test_a_window_shows_rows_in_their_order(vector: Vector) -> None:
    driver = ManualDriver()
    driver.topic()
    rows = vector["rows"]
    for offset, (key, value) in enumerate(rows[::-1], start=1):
        published(driver, offset, value, key)
    for options, command in (("", "sow"), ("top_n=100", "sow_and_subscribe")):
        driver.subscribe(options, order=vector["order"], command=command, session=command)
        found = [(frame.key, frame.payload.decode()) for frame in rows_of(driver.take(command))]
        if vector["order"] or options:
            assert found == [(key, value) for key, value in rows]


@rule("delta-1", "delta-2", "delta-5")
@each_vector("deltas", "changes")
def test_a_subscriber_of_deltas_gets_what_changed(vector: Vector) -> None:
    driver = ManualDriver()
    driver.topic()
    record, following = (f"{KEYED},{vector[name].lstrip()[1:]}" for name in ("record", "next"))
    published(driver, 1, record)
    driver.subscribe(command="sow_and_delta_subscribe")
    driver.take()
    published(driver, 2, following)
    driver.flush()
    [row] = rows_of(driver.take())
    patch = row.patch if isinstance(row, Row) else None
    if vector["delta"] is None:
        assert (patch, row.payload) == (None, following.encode())
    else:
        members = vector["delta"][1:]
        expected = f"{KEYED}{members}" if members == "}" else f"{KEYED},{members}"
        assert (patch or b"").decode() == expected
        assert are_equal(row.payload, following.encode())
