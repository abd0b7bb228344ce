"""The command: what it refuses before Spark is started, and one answer as a whole."""

from __future__ import annotations

import gzip
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.history import read_history
from tidegate.pipeline.command import command
from tidegate.pipeline.errors import HistoryInvalid, HistoryUnreadable, StreamFailed
from tidegate.pipeline.intervals import Pace
from tidegate.pipeline.planner import plan as module
from tidegate.pipeline.planner.choices import Question, add_tallies, tally_choices
from tidegate.pipeline.planner.plan import PlanArguments, _history_error, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WISH = PlanArguments(
    path=Path("none.ndjson"), keys=["/a"], intervals=["1s"], paces=["batch"], time_field="/ts",
    time_unit="auto", as_json=False, charts=[], master="local[1]",
)  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "none.ndjson: there is no such file"),
        ({"keys": ["a"]}, "--key a: a field path starts with / or $"),
        ({"keys": ["/a,/a"]}, "--key /a,/a: a path is given twice"),
        ({"keys": [""]}, "--key : a field path starts"),
        ({"intervals": ["1s,1x"]}, "--interval: expected durations from 1ms to 1d, such as 500ms"),
        ({"intervals": ["2d"]}, "not '2d'"),
        ({"paces": ["key,slow"]}, "--pace: expected key or batch, not 'slow'"),
        ({"time_field": "ts"}, "--time-field ts: a field path starts"),
        ({"time_unit": "h"}, "--time-unit: expected auto, ms or s"),
        ({"time_unit": "h", "time_field": None}, "--time-unit: expected auto, ms or s"),
        ({"charts": [Path("nowhere/a.svg")]}, "--chart nowhere/a.svg: there is no folder nowhere"),
        ({"charts": [Path("a.gif")]}, "--chart a.gif: expected a name that ends in .svg or .png"),
        ({"intervals": [f"{ms}ms" for ms in range(1, 1_002)]}, "more than 1000 choices"),
    ],
)
def test_wrong_usage_is_2_and_one_line(
    wrong: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(replace(WISH, **wrong)) == 2  # type: ignore[arg-type]  # fields by name
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tidegate: ")
    assert said in err
    assert err.count("\n") == 1


def test_text_needs_a_time_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.ndjson").touch()
    assert plan(replace(WISH, path=tmp_path / "a.ndjson", time_field=None)) == 2
    assert "--time-field is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("tidegate.pipeline.errors.HistoryInvalid: a, line 3: not JSON", HistoryInvalid),
        ("OSError: /in/a.gz: Truncated compressed stream", HistoryUnreadable),
        ("something else", StreamFailed),
    ],
)
def test_an_error_of_spark_is_a_sentence(said: str, kind: type[Exception]) -> None:
    assert type(_history_error(Path("a.gz"), said)) is kind


@pytest.mark.spark
def test_the_command_answers_with_json_and_charts(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, "spark_session", lambda master: nullcontext(spark))
    first = b"".join(b'{"a":%d,"ts":%d}\n' % (n % 2, n * 10) for n in range(300))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.ndjson.gz").write_bytes(gzip.compress(first))
    (tmp_path / "in" / "2.ndjson").write_bytes(b'\n{"a":1,"ts":3000}\n')
    asked = ["--key", "/a", "--interval", "100ms,1s", "--pace", "batch", "--time-field", "/ts"]
    charts = ["--chart", str(tmp_path / "a.svg"), "--chart", str(tmp_path / "a.png")]
    assert command(["plan", str(tmp_path / "in"), *asked, "--json", *charts]) == 0
    answer = json.loads(capsys.readouterr().out)
    # 100 ms hold ten messages of 2 keys; the last message of all stands alone.
    assert [one["messages"] for one in answer["choices"]] == [61, 7]
    assert answer["recommended"]["interval"] == "1s"
    assert answer["choices"][0]["saving"] == round(1 - 61 / 301, 6)
    assert (tmp_path / "a.svg").exists()
    assert (tmp_path / "a.png").exists()


@pytest.mark.spark
def test_a_bad_line_is_named_through_all_that_spark_wraps_around_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.ndjson").write_bytes(b'\n{"a":1\n')
    question = Question((KeySpec.of(["/a"]),), (10**9,), (Pace.BATCH,), None, 1)
    with pytest.raises(Exception, match="HistoryInvalid") as raised:
        add_tallies(tally_choices(read_history(spark, tmp_path), question), question)
    refusal = _history_error(Path("a"), str(raised.value))
    assert str(refusal) == "a: a.ndjson, line 2: not JSON: Input data was truncated"
    assert refusal.exit_code == 1
