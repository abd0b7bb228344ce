"""TOML tables are read strictly: unknown fields, wrong types and bad values are errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.keys.reducers import Reduce
from tidegate.pipeline.definitions.toml import (
    COUNT_MAX,
    STREAM,
    TOPIC,
    TomlTable,
    alike,
    bracketed,
    read_filter,
    read_list,
    read_path,
    read_paths,
    read_toml,
    shown,
)
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
def test_an_unknown_field_is_refused(field: str, said: str) -> None:
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


def test_names_are_alike_if_one_typing_error_separates_them() -> None:
    assert alike("kye", ["kind", "key"]) == "key"
    assert alike("Topic", ["TOPIC"]) == "TOPIC"
    assert alike("topics", ["topic"]) == "topic"
    assert alike("filter", ["interval"]) is None


def test_a_value_is_shown_as_in_the_file_without_passwords() -> None:
    assert [shown(found) for found in (True, "a", ["/b"], 1.5)] == ["true", '"a"', '["/b"]', "1.5"]
    assert shown("redis://me:secret@h/0") == '"redis://...@h/0"'


def test_a_field_may_hold_a_text_in_place_of_a_table() -> None:
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


def root_table(**fields: object) -> TomlTable:
    return TomlTable(fields, "s.toml", "")


def reducers(given: TomlTable) -> Reduce:
    return read_list(given, "reduce", "reducers", lambda texts: Reduce.parse(*bracketed(texts)))


def test_filters_paths_and_reducers_are_read() -> None:
    assert read_filter(root_table()) is None
    assert str(read_filter(root_table(filter="/a>1"))) == "/a > 1"
    assert str(read_path(root_table(field="$.a.b"), "field", "a path")) == "/a/b"
    assert str(read_paths(root_table(key=["/a", "$.b.c"]), "key")) == "[/a,/b/c]"
    assert str(reducers(root_table(reduce=["/a:sum", " /b:max@c"]))) == "[/a:sum,/b:max@c]"


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (
            lambda: read_filter(root_table(filter=" ")),
            "filter: expected a filter, such as /qty > 0, found",
        ),
        (lambda: read_filter(root_table(filter="/a >")), "filter, position 4: expected a value"),
        (
            lambda: read_filter(root_table(filter="/a = b")),
            "filter, position 5: expected a value",
        ),
        (
            lambda: read_path(root_table(at="/a//b"), "at", "a path"),
            "at, position 2: expected /name",
        ),
        (
            lambda: read_paths(root_table(key=["/a", "/b/"]), "key"),
            "key[1], position 2: expected /name",
        ),
        (
            lambda: read_paths(root_table(key=["/a", "/a"]), "key"),
            "key[1], position 0: a path is given",
        ),
        (
            lambda: read_paths(root_table(key=["/a,/b"]), "key"),
            "key[0], position 2: expected /name",
        ),
        (lambda: read_paths(root_table(key=[]), "key"), "key: expected field paths, such as"),
        (
            lambda: read_paths(root_table(), "key"),
            "key: is missing, expected field paths, such as",
        ),
        (
            lambda: reducers(root_table(reduce=["/a:sum", "/b:most", "c"])),
            "reduce[1], position 3: ",
        ),
        (
            lambda: reducers(root_table(reduce=["/a:sum", " b:sum"])),
            "reduce[1], position 1: a field",
        ),
        (
            lambda: reducers(root_table(reduce=["/a:sum", "/a:max"])),
            "reduce[1], position 0: two red",
        ),
    ],
)
def test_a_mistake_has_a_position(read: Callable[[], object], said: str) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        read()
    assert str(caught.value).startswith(f"s.toml: {said}")


def said_of(folder: Path, content: bytes) -> str:
    path = folder / "s.toml"
    path.write_bytes(content)
    with pytest.raises(DefinitionInvalid) as caught:
        read_toml(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def test_tables_are_read_whatever_editor_has_saved_them(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes('\ufeff[a]\r\nb = "\u00e9"\r\n'.encode())
    assert read_toml(path) == {"a": {"b": "\u00e9"}}


def test_bytes_that_are_no_text_are_an_error_with_their_line(tmp_path: Path) -> None:
    assert (
        said_of(tmp_path, b'a = 1\n\nb = "\xff"\n') == "line 3: not UTF-8: save the file as UTF-8"
    )
    assert said_of(tmp_path, "a = 1".encode("utf-16")).startswith("line 1: not UTF-8")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"\na = 1s",
            "line 2, column 6: not TOML, expected newline or end of document after a statement;",
        ),
        (
            b"a = /b\n",
            'line 1, column 5: not TOML, invalid value; a text needs quotes, such as "1s"',
        ),
        (b'a = "b\n', "line 1, column 7: not TOML, illegal character '\\n'; the quote at the end"),
        (b'a = ["b" "c"]\n', "line 1, column 10: not TOML, unclosed array; a comma between two"),
        (b"a = {\nb = 1}\n", "line 1, column 6: not TOML, invalid initial character"),
        (b"a = 1\na = 2\n", "line 2, column 6: not TOML, cannot overwrite a value; the same field"),
        (b"[a.b]\n[a.b]\n", "line 2, column 5: not TOML, cannot declare a.b twice"),
        (b"a = [", "at the end: not TOML, invalid value"),
        (b"a = " + b"[" * 5_000, "lists or tables are nested too deep"),
        (b"a = " + b"9" * 5_000, "a number has too many digits"),
    ],
    ids=lambda value: value[:12] if isinstance(value, bytes) else "",
)
def test_bad_toml_is_an_error_with_its_line_and_the_remedy(
    tmp_path: Path, content: bytes, said: str
) -> None:
    assert said_of(tmp_path, content).startswith(said)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DefinitionInvalid, match=r"none\.toml: No such file or directory$"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(DefinitionInvalid, match="Is a directory"):
        read_toml(tmp_path)


@pytest.mark.parametrize("name", ["a", "ticks-1s", "A_b", "9", "a" * 63])
def test_streams_have_short_plain_names(name: str) -> None:
    assert STREAM.fullmatch(name)


@pytest.mark.parametrize("name", ["", "-a", "a b", "a.b", "a" * 64, "é", "a\n"])
def test_other_names_of_streams_are_refused(name: str) -> None:
    assert not STREAM.fullmatch(name)


@pytest.mark.parametrize("name", ["a", "ticks.1s", "a_b-c", "a" * 255])
def test_topics_may_have_dots(name: str) -> None:
    assert TOPIC.fullmatch(name)


@pytest.mark.parametrize("name", ["", ".a", "_a", "a/b", "a" * 256])
def test_other_topics_are_refused(name: str) -> None:
    assert not TOPIC.fullmatch(name)
