from __future__ import annotations

import pytest

from pipeline.definitions.tomltable import TomlTable
from pipeline.errors import DefinitionInvalid


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
        ("other", "s.toml: pipeline.s.other: unknown field"),
        ("edge", "s.toml: pipeline.s.edge: not available yet"),
        ("files_per_batch", "s.toml: pipeline.s.files_per_batch: only with a source of kind files"),
    ],
)
def test_a_field_that_nobody_took_is_refused(field: str, said: str) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        table(**{field: 1}).finish()
    assert str(caught.value) == said


def test_errors_name_the_place_inside_inner_tables_and_keep_long_values_short() -> None:
    with pytest.raises(DefinitionInvalid, match=r"^s.toml: pipeline.s.inner.x: expected a text"):
        table(inner={"x": 1}).table("inner").text("x")
    with pytest.raises(DefinitionInvalid) as caught:
        table(name="x" * 5_000).checked("name", str.isdigit, "digits")
    assert len(str(caught.value)) < 200


def test_a_boolean_is_no_number_and_no_text() -> None:
    with pytest.raises(DefinitionInvalid, match="expected a whole number above 0, found True"):
        table(rows=True).count("rows")
    with pytest.raises(DefinitionInvalid, match="expected a text, found False"):
        table(name=False).text("name")
