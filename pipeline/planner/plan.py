"""`tidegate pipeline plan PATH`: what each choice of key, interval and pace would have saved."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.keys.errors import PathInvalid, TextInvalid
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import parse_interval, whole_ms
from tidegate.pipeline.columns.history import check_history, is_parquet, read_history
from tidegate.pipeline.columns.rows import shuffle_partitions
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.errors import (
    EXIT_DONE,
    HistoryInvalid,
    HistoryUnreadable,
    PipelineError,
    UsageInvalid,
    from_spark,
)
from tidegate.pipeline.intervals import MILLISECOND_NS, Pace
from tidegate.pipeline.operations.shutdown import print_error
from tidegate.pipeline.planner.chart import write_chart
from tidegate.pipeline.planner.choices import Choice, Plan, Question, add_tallies, tally_choices
from tidegate.pipeline.spark.session import spark_session

CHOICES_MAX = 1_000  # every choice holds a row for each key, and counts each message
CHARTS = frozenset({".svg", ".png"})
# Arrow's words for a compressed file that is damaged.
DAMAGED = ("Truncated compressed stream", "inflate failed", "decompress failed")


@dataclass(frozen=True, slots=True)
class PlanArguments:
    """The command's arguments as they are given."""

    path: Path
    keys: Sequence[str]
    intervals: Sequence[str]
    paces: Sequence[str]
    time_field: str | None
    time_unit: str
    as_json: bool
    charts: Sequence[Path]
    master: str


def plan(arguments: PlanArguments) -> int:
    """Answer on standard output; returns the exit code of the command line.

    0: answered; 1: a line is no message; 2: wrong usage, no such history; 78: no Spark; each
    after one line on standard error.
    """
    try:
        found = compare_choices(arguments)
        text = json.dumps(found.document(), indent=2) + "\n" if arguments.as_json else found.table()
        for path in arguments.charts:
            _write(found, path)
    except PipelineError as error:
        print_error(str(error))
        return error.exit_code
    sys.stdout.write(text)
    return EXIT_DONE


def compare_choices(arguments: PlanArguments) -> Plan:
    """Read the history once, and return what each choice would have sent of it.

    Raises:
        PipelineError: as one sentence.
    """
    # By text, so that a key given twice is one choice.
    specs = {_key_text(spec): spec for spec in map(_spec, arguments.keys)}
    texts = {_interval_ns(text): text.lower() for text in _listed(arguments.intervals)}
    for chart in arguments.charts:
        _check_chart(chart)
    paces = tuple(dict.fromkeys(_pace(text) for text in _listed(arguments.paces)))
    if len(specs) * len(texts) * len(paces) > CHOICES_MAX:
        raise UsageInvalid(f"more than {CHOICES_MAX} choices")
    time = TimeField.of_options(arguments.time_field, arguments.time_unit)
    check_history(arguments.path)
    if time is None and not is_parquet(arguments.path):
        raise UsageInvalid("--time-field is missing, such as --time-field /ts")
    with spark_session(arguments.master) as spark:
        try:
            shards = shuffle_partitions(spark)
            question = Question(tuple(specs.values()), tuple(texts), paces, time, shards)
            tallies = tally_choices(read_history(spark, arguments.path), question)
            answer = add_tallies(tallies, question)
        except PipelineError:
            raise
        except Exception as error:  # whatever Spark, py4j or the JVM has to say
            raise _history_error(arguments.path, str(error)) from None
    # Savings are shares of the messages: without any there is no answer.
    if not answer.seen[0].messages:
        raise HistoryInvalid(f"{arguments.path}: there is no message in it")
    return Plan(
        [
            Choice(
                list(specs)[place], texts[interval.interval_ns], interval, sent, answer.seen[place]
            )
            for (place, interval), sent in zip(question.choices(), answer.sent, strict=True)
        ]
    )


def _check_chart(chart: Path) -> None:
    """Check a chart's name and folder before the history is read, which may take long."""
    if chart.suffix.lower() not in CHARTS:
        raise UsageInvalid(f"--chart {chart}: expected a name that ends in .svg or .png")
    if not chart.parent.is_dir():
        raise UsageInvalid(f"--chart {chart}: there is no folder {chart.parent}")


def _write(found: Plan, path: Path) -> None:
    try:
        write_chart(found, path)
    except OSError as error:
        raise UsageInvalid(f"--chart {path}: {error.strerror or error}") from None


def _history_error(path: Path, said: str) -> PipelineError:
    if any(word in said for word in DAMAGED):
        return HistoryUnreadable(f"{path}: is not a whole compressed file")
    return from_spark(str(path), said)


def _listed(texts: Sequence[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",")]


def _spec(text: str) -> KeySpec:
    """Parse a key: `/a`, `/a,/b` or `[/a,/b]`."""
    inner = text.strip()
    bracketed = inner if inner.startswith("[") else f"[{inner}]"
    try:
        return KeySpec.parse(bracketed)
    except PathInvalid as error:
        raise UsageInvalid(f"--key {text}: {error.detail}") from None


def _key_text(spec: KeySpec) -> str:
    return str(spec)[1:-1]


def _interval_ns(text: str) -> int:
    try:
        return whole_ms(parse_interval(text)) * MILLISECOND_NS
    except TextInvalid:
        raise UsageInvalid(
            f"--interval: expected durations from 1ms to 1d, such as 500ms, not {text!r}"
        ) from None


def _pace(text: str) -> Pace:
    try:
        return Pace(text)
    except ValueError:
        raise UsageInvalid(f"--pace: expected key or batch, not {text!r}") from None
