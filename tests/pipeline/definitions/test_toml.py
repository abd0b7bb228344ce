from __future__ import annotations

import pytest

from tidegate.pipeline.definitions.toml import COUNT_MAX, TomlTable, alike, shown
from tidegate.pipeline.errors import DefinitionInvalid


def table(**fields: object) -> TomlTable:
    return TomlTable(fields, "s.toml", "pipeline.s.")


def test_fields_that_were_taken_are_known() -> None:
    taken = table(name="a", rows=3, inner={"x": "y"})
    assert taken.text("name") == "a"
    assert taken.text("absent", default="d") == "d"
    assert (taken.count("rows"), taken.count("files")) == (3, None)
    assert taken.table("inner").text("x") == "y"
    taken.finish()


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("other", "unknown field; known are key, name"),
        ("nmae", "unknown field; did you mean name?"),
        ("KEY", "unknown field; did you mean key?"),
        ("edge", "not available yet"),
        ("egde", "unknown field; did you mean edge?"),
        ("a\x1b\nb", "unknown field; known are"),
    ],
)
def test_a_field_that_nobody_took_is_refused(field: str, said: str) -> None:
    taken = table(**{field: 1})
    taken.text("name", default="")
    assert not taken.has("key")
    with pytest.raises(DefinitionInvalid) as caught:
        taken.finish({"edge": "not available yet"})
    assert str(caught.value).startswith(
        f"s.toml: pipeline.s.{field.replace(chr(10), '?').replace(chr(27), '?')}: {said}"
    )


def test_a_field_that_is_missing_may_have_been_misspelt() -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        table(intervall="1s", key=1).text("interval", expected="a duration")
    assert str(caught.value) == (
        "s.toml: pipeline.s.interval: is missing; did you mean interval instead of intervall?"
    )
    for missing in (
        lambda: table(pace="key").text("interval", expected="a duration"),
        lambda: table(pace="key").texts("interval", expected="a duration"),
        lambda: table(pace="key").table("interval", expected="a duration"),
    ):
        with pytest.raises(DefinitionInvalid, match=r"interval: is missing, expected a duration$"):
            missing()


def test_names_are_alike_if_a_slip_lies_between_them() -> None:
    assert alike("kye", ["kind", "key"]) == "key"
    assert alike("Topic", ["TOPIC"]) == "TOPIC"
    assert alike("topics", ["topic"]) == "topic"
    assert alike("filter", ["interval"]) is None


def test_a_value_is_shown_as_it_stands_in_the_file_but_for_passwords() -> None:
    assert [shown(found) for found in (True, "a", ["/b"], 1.5)] == ["true", '"a"', '["/b"]', "1.5"]
    assert shown("redis://me:secret@h/0") == '"redis://...@h/0"'


def test_a_field_may_say_one_text_in_place_of_a_table() -> None:
    taken = table(time="processing", merge="sum")
    assert taken.says("time", "processing")
    assert not taken.says("merge", "replace")
    assert not taken.says("absent", "replace")
    assert taken.left == ["merge"]


def test_errors_name_the_place_inside_inner_tables_and_keep_long_values_short() -> None:
    with pytest.raises(DefinitionInvalid, match=r"^s.toml: pipeline.s.inner.x: expected a text"):
        table(inner={"x": 1}).table("inner").text("x")
    with pytest.raises(DefinitionInvalid) as caught:
        table(name="x" * 5_000).checked("name", str.isdigit, "digits")
    assert len(str(caught.value)) < 200


def test_a_boolean_is_no_number_and_no_text() -> None:
    with pytest.raises(
        DefinitionInvalid, match="expected a whole number from 1 to 2147483647, found true"
    ):
        table(rows=True).count("rows")
    with pytest.raises(DefinitionInvalid, match="expected a text, found false"):
        table(name=False).text("name")


def test_a_count_has_bounds() -> None:
    assert table(rows=COUNT_MAX).count("rows") == COUNT_MAX
    for rows, most in ((COUNT_MAX + 1, COUNT_MAX), (0, 5), (6, 5)):
        with pytest.raises(DefinitionInvalid, match=f"a whole number from 1 to {most}, found"):
            table(rows=rows).count("rows", most)
