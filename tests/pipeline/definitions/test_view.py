"""The part of a definition that makes a stream a view."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tidegate.pipeline.definitions.source import TopicSource
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.definitions.view import ViewDefinition, read_view
from tidegate.pipeline.errors import DefinitionInvalid

GOOD = """\
record_key = ["/id"]
filter = "/qty > 0"
grouping = ["/region"]
projection = ["SUM(/qty) AS /qty", "MAX(/q/bid) AS /bid"]
[join]
source = {kind = "tidegate", topic = "quotes"}
rows_per_batch = 7
record_key = ["/ticker", "/venue"]
on = [["/symbol", "/ticker"]]
as = "/q"
filter = "/live = 1"
"""


def view_of(text: str) -> ViewDefinition | None:
    table = TomlTable(tomllib.loads(text), "v.toml", "pipeline.v.")
    found = read_view(table, Path("/in"))
    table.finish()
    return found


def test_a_view_is_read() -> None:
    found = view_of(GOOD)
    assert found is not None
    assert found.join is not None
    assert str(found.record_key) == "[/id]"
    assert str(found.projection) == (
        "projection=[SUM(/qty) AS /qty,MAX(/q/bid) AS /bid],grouping=[/region]"
    )
    assert found.join.source == TopicSource("quotes", "epoch", 7)
    assert [(str(left), str(right)) for left, right in found.join.on] == [("/symbol", "/ticker")]
    assert str(found) == (
        "key [/id] filter /qty > 0 projection=[SUM(/qty) AS /qty,MAX(/q/bid) AS /bid],"
        "grouping=[/region] join topic quotes key [/ticker,/venue] on /symbol=/ticker as /q "
        "filter /live = 1"
    )


def test_without_grouping_and_join_there_is_no_view() -> None:
    assert view_of("") is None
    assert view_of('grouping = ["/g"]\nprojection = ["/v"]') == view_of(
        'projection = ["/v"]\ngrouping = ["/g"]'
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('grouping = ["/region"]', "", "pipeline.v.grouping: is missing, expected field paths"),
        ('["/region"]', '["region"]', "pipeline.v.grouping[0], position 0: a field path"),
        ('["/region"]', '["$.a[0]"]', "pipeline.v.grouping[0]: groups are by fields"),
        ('"MAX(/q/bid) AS /bid"]', '"MAX(/q/bid)"]', "pipeline.v.projection[1], position 0: exp"),
        ('"SUM(/qty) AS /qty", ', '"SUM(/qty AS /qty", ', "pipeline.v.projection[0], position 9: "),
        ("AS /bid", "AS /qty/bid", "pipeline.v.projection[1], position 0: two columns in one"),
        (
            'projection = ["SUM(/qty) AS /qty", "MAX(/q/bid) AS /bid"]', "",
            "pipeline.v.projection: is missing, expected columns, such as",
        ),
        ('on = [["/symbol", "/ticker"]]', "", "pipeline.v.join.on: is missing, expected pairs"),
        ("rows_per_batch = 7", "files_per_batch = 7", "pipeline.v.join.files_per_batch: only with"),
        ("projection = [", "projection = [7, ", "pipeline.v.projection: expected columns"),
        ("filter = \"/qty > 0\"", 'filter = "/qty >"', "pipeline.v.filter, position 6: "),
        ('record_key = ["/id"]', 'key = ["/id"]', "pipeline.v.key: the key of groups is"),
        ('record_key = ["/id"]', 'record_key = "/id"', "pipeline.v.record_key: expected field"),
        ('record_key = ["/id"]', 'time = "event"', "pipeline.v.time: not with grouping or join"),
        ('[["/symbol", "/ticker"]]', '["/symbol"]', "pipeline.v.join.on: expected pairs"),
        ('[["/symbol", "/ticker"]]', '[["/symbol", "t"]]', "pipeline.v.join.on[0][1], position 0"),
        ('as = "/q"', "", "pipeline.v.join.as: is missing, expected the field for the right"),
        ('as = "/q"', 'as = "$.a[1]"', "pipeline.v.join.as: expected the field for the right"),
        ('as = "/q"', 'as = "/q"\nhow = "inner"', "pipeline.v.join.how: unknown field"),
        ('kind = "tidegate"', 'kind = "table"', "pipeline.v.join.source.kind: expected tidegate"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_names_its_place(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(DefinitionInvalid) as caught:
        view_of(GOOD.replace(old, new, 1))
    assert str(caught.value).startswith(f"v.toml: {said}")
    assert "\n" not in str(caught.value)


def test_a_view_may_name_its_defaults() -> None:
    defaults = 'time = "processing"\nmerge = "replace"\npace = "batch"\n'
    assert view_of(defaults + GOOD) == view_of(GOOD)


def test_joined_records_that_are_not_grouped_have_the_streams_key() -> None:
    joined = GOOD.replace('grouping = ["/region"]\n', "")
    joined = "\n".join(line for line in joined.splitlines() if not line.startswith("projection"))
    with pytest.raises(DefinitionInvalid, match="record_key: only with grouping, else key"):
        view_of(joined)
    found = view_of(joined.replace('record_key = ["/id"]\n', "", 1))
    assert found is not None
    assert (found.record_key, found.projection) == (None, None)
