from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.definitions.streams_file import GOOD, check_mistake, written
from tests.pipeline.merger import MERGER
from tidegate.keys.filter import Filter
from tidegate.keys.path import FieldPath
from tidegate.keys.reducers import Reduce
from tidegate.pipeline.columns.times import TimeField, Unit
from tidegate.pipeline.definitions.conflation import ConflationDefinition, EventTime
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.intervals import Pace

OLD = "rows_per_batch = 10"


def read(folder: Path, new: str) -> ConflationDefinition:
    return read_definitions(written(folder, GOOD.replace(OLD, new, 1)))[0].conflation


def test_without_a_word_the_newest_of_each_key_goes_out_with_its_batch(tmp_path: Path) -> None:
    assert read(tmp_path, "") == ConflationDefinition()
    assert read(
        tmp_path, 'pace = "batch"\ntime = "processing"\nmerge = "replace"\noof = false'
    ) == (ConflationDefinition())


def test_all_that_can_be_said(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        'pace = "key"\noof = true\nfilter = "/px > 1"\nreduce = ["/px:last", "/px:max@hi"]\n'
        'time = {field = "/ts", watermark = "5s", unit = "s"}',
    )
    time = EventTime(TimeField(FieldPath.parse("/ts"), Unit.SECONDS), 5_000)
    reduce = Reduce.parse("[/px:last,/px:max@hi]")
    assert found == ConflationDefinition(Pace.KEY, Filter.parse("/px > 1"), reduce, True, time)
    assert str(found) == (
        "pace key, time /ts in s, watermark 5000ms, oof True, filter /px > 1, "
        "reduce [/px:last,/px:max@hi]"
    )


def test_a_merge_names_fields_and_a_watermark_may_be_none(tmp_path: Path) -> None:
    found = read(tmp_path, 'merge = {"/qty" = "sum"}\ntime = {field = "/ts", watermark = "0s"}')
    assert found.reduce == Reduce.parse("[/qty:sum]")
    assert found.time == EventTime(TimeField(FieldPath.parse("/ts")), 0)


def test_the_time_may_be_that_of_publication(tmp_path: Path) -> None:
    found = read(tmp_path, 'time = "published"')
    assert (found.time, found.holds) == (EventTime(None, 0), True)
    assert str(found) == "pace batch, time published, oof False"


def test_a_registered_merger_is_known_by_its_name(tmp_path: Path) -> None:
    found = read(tmp_path, f'merge = "{MERGER}"')
    assert found == ConflationDefinition(merger=MERGER)
    assert str(found) == f"pace batch, time processing, oof False, merger {MERGER}"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('filter = "/px > 1"\nreduce = ["/px:max"]', False),
        ('pace = "key"', True),
        ("oof = true", True),
        ('time = {field = "/ts"}', True),
        (f'merge = "{MERGER}"', True),
    ],
)
def test_a_checkpoint_remembers_what_holds_something(
    tmp_path: Path, text: str, holds: bool
) -> None:
    found = read(tmp_path, text)
    assert (found.holds, bool(str(found))) == (holds, holds)


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ('filter = "/a >"', "newest.filter, position 4: expected a value"),
        ("filter = 1", "newest.filter: expected a filter, such as"),
        ('pace = "slow"', 'newest.pace: expected batch or key, found "slow"'),
        ('oof = "yes"', "newest.oof: expected true or false"),
        ("reduce = []", "newest.reduce: expected reducers, such as"),
        ("reduce = [1]", "newest.reduce: expected reducers, such as"),
        ('reduce = ["/px:most"]', "newest.reduce[0], position 4: expected a reducer: last first"),
        ('reduce = ["/a:sum"]', "newest.reduce: a reducer writes to a field of the key"),
        ('merge = "nothing"', 'newest.merge: expected "replace", reducers of fields such as'),
        ("merge = 1", 'newest.merge: expected "replace", reducers of fields such as'),
        (
            'merge = "no.such:function"',
            "newest.merge: merger no.such:function cannot be imported: ModuleNotFoundError: No mod",
        ),
        (
            'merge = "tidegate.keys.merging:__name__"',
            "merger tidegate.keys.merging:__name__ is not a function",
        ),
        (
            'merge = {"/qty" = "sum", "/px" = "most"}',
            'newest.merge."/px", position 0: expected a reducer: last first',
        ),
        ('merge = {"px" = "sum"}', 'newest.merge."px", position 0: a field path starts with'),
        ('merge = {"/px" = "max@"}', 'newest.merge."/px", position 4: expected a field\'s name'),
        ("merge = {}", 'newest.merge: expected "replace", reducers of fields such as'),
        ('merge = {"/px" = "sum"}\nreduce = ["/px:sum"]', "newest.merge: not with reduce"),
        (f'merge = "{MERGER}"\nreduce = ["/px:sum"]', "newest.merge: not with reduce"),
        ('time = "event"', 'newest.time: expected "processing", "published" or a table such as'),
        ('time = {event = "/ts"}', "newest.time.field: is missing, expected a field path"),
        ('time = {field = "/ts", kind = "event"}', "unknown field; known are field, unit, waterm"),
        ("time = {}", "newest.time.field: is missing, expected a field path"),
        ('time = {field = "ts"}', "newest.time.field, position 0: a field path starts"),
        ('time = {field = "/ts", watermark = "2d"}', "newest.time.watermark: expected a duration"),
        ('time = {field = "/ts", unit = "us"}', "newest.time.unit: expected auto, ms or s"),
        ('time = {field = "/ts", late = 1}', "newest.time.late: unknown field"),
        ('watermark = "5s"', "newest.watermark: belongs in the table time, such as"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(tmp_path: Path, new: str, said: str) -> None:
    check_mistake(tmp_path, OLD, new, said)
