"""Field paths in both spellings, and what each finds in a message."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.errors import PathInvalid
from tidegate.keys.filter import Filter
from tidegate.keys.lines import LineReader
from tidegate.keys.path import (
    STEPS_MAX,
    TEXT_LENGTH_MAX,
    FieldPath,
    fields_decoder,
    getter,
    jsonpath_steps,
    memoize_bounded,
)
from tidegate.keys.spec import KeySpec


def test_a_path_has_at_most_64_steps() -> None:
    assert len(FieldPath.parse("/a" * STEPS_MAX).steps) == STEPS_MAX
    for text in ("/a" * (STEPS_MAX + 1), "$" + ".a" * (STEPS_MAX + 1), "$" + "[0]" * 65):
        with pytest.raises(PathInvalid, match="64"):
            FieldPath.parse(text)


@examples(25)
@given(st.text(alphabet="$/.[]'\"ab01*?@(),:|\\ \n\u00e9`", max_size=24))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        path = FieldPath.parse(text)
    except PathInvalid:
        return
    assert FieldPath.parse(str(path)) == path


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
STEPS = st.lists(st.one_of(NAMES.filter(lambda name: name != "*"), st.integers(0, 3)), min_size=1)


@examples(25)
@given(STEPS.map(tuple))
def test_every_path_can_be_spelt(steps: tuple[str | int, ...]) -> None:
    path = FieldPath(steps[:STEPS_MAX])
    assert FieldPath.parse(str(path)) == path


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)
PLACES = st.lists(st.one_of(st.sampled_from("abc"), st.integers(0, 2)), max_size=4)


def inside(value: object, step: str | int) -> list[object]:
    """What stands at a step of a value, as a list of none or one."""
    if isinstance(step, str):
        return [value[step]] if isinstance(value, dict) and step in value else []
    return value[step : step + 1] if isinstance(value, list) else []


@examples(30)
@given(JSON, PLACES)
def test_a_getter_finds_what_plain_python_finds(value: object, steps: list[str | int]) -> None:
    found: list[object] = [value]
    for step in steps:
        found = [item for outer in found for item in inside(outer, step)]
    text = getter(tuple(steps))(json.dumps(value).encode())
    assert ([] if text is None else [json.loads(text)]) == found


@rule("key-4")
@pytest.mark.parametrize(
    "name", ['a"b', "a\\b", "a\nb", "\x00", "\x1f", "", "\x7f", "a b", "\u2028"]
)
def test_whatever_name_a_path_can_spell_can_be_read(name: str) -> None:
    text = json.dumps({"other": 1, name: [7]}).encode()
    assert getter((name, 0))(text) == b"7"
    assert getter((name, 0))(b'{"other":1}') is None
    assert getter((name, 0))(b"[1]") is None


@rule("key-3")
def test_of_duplicate_names_the_last_counts_however_it_is_spelt() -> None:
    assert getter(("a",))(b'{"a":1,"\\u0061":2}') == b"2"
    assert getter(("a", "b"))(b'{"a":{"b":1},"a":{"c":2}}') is None
    assert getter(('"',))(b'{"\\"":1,"\\u0022":2}') == b"2"


def test_an_index_beyond_all_lists_finds_nothing() -> None:
    assert getter((10**30,))(b"[1]") is None


def test_one_decoder_reads_several_fields() -> None:
    record = fields_decoder(("a", "b\n"))(b'{"b\\n":2,"c":[],"a":1}')
    assert [bytes(getattr(record, name)) for name in ("f0", "f1")] == [b"1", b"2"]


def test_types_are_made_for_the_first_fields_and_never_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.keys.path.TYPES_MAX", 2)
    monkeypatch.setattr("tidegate.keys.path.TYPE_FIELDS_MAX", 2)
    made: list[tuple[str, ...]] = []

    @memoize_bounded
    def make(names: tuple[str, ...]) -> object:
        made.append(names)
        return None if names == ("odd",) else object()

    first = make(("a",))
    asked = [("odd",), ("a", "b", "c"), ("b", "c"), ("d",), ("b", "c"), ("d",)]
    assert [make(names) is None for names in asked] == [True, True, False, True, False, True]
    assert make(("a",)) is first
    assert made == [("a",), ("odd",), ("b", "c")]


def test_fields_beyond_those_are_read_a_slower_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.keys.path.TYPES_MAX", 0)
    record = fields_decoder(("late", "absent"))(b'{"late":[1],"k":0}')
    assert (bytes(record.f0), record.f1) == (b"[1]", msgspec.UNSET)
    with pytest.raises(msgspec.ValidationError):
        fields_decoder(("late",))(b"[1]")
    assert LineReader.of(KeySpec.of(["/late"])) is None
    matches = Filter.parse("/late[0] = 1 AND /absent IS NULL").matcher("px")
    assert matches(b'{"late":[1]}', "[1]")
    assert not matches(b'{"late":[2]}', "[1]")


def test_a_text_has_a_length() -> None:
    name = "a" * (TEXT_LENGTH_MAX - 2)
    assert jsonpath_steps(f"$.{name}") == (name,)
    with pytest.raises(PathInvalid, match="1024"):
        jsonpath_steps(f"$.{name}a")


def test_deep_nesting_is_refused_not_a_crash() -> None:
    with pytest.raises(PathInvalid):
        jsonpath_steps("$" + "(" * 500 + "a" + ")" * 500)


def test_an_error_echoes_no_input() -> None:
    with pytest.raises(PathInvalid) as refused:
        jsonpath_steps("$.<script>")
    assert "script" not in str(refused.value)
