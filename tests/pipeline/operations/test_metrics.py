from __future__ import annotations

from urllib.request import urlopen

import pytest

from tests.support.deadlines import HANGS_S
from tidegate.pipeline.errors import UsageInvalid
from tidegate.pipeline.operations.metrics import FIGURES, PREFIX, MetricsSink, serving_metrics
from tidegate.pipeline.operations.status import Pace, State, StreamStatus, Totals

LOOPBACK = "127.0.0.1"


def scraped(board: MetricsSink) -> dict[str, float]:
    with (
        serving_metrics(board, 0, LOOPBACK) as port,
        urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=HANGS_S) as answer,
    ):
        lines = answer.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def test_every_figure_of_every_stream_is_scraped() -> None:
    board = MetricsSink()
    busy = StreamStatus(
        "busy",
        State.RUNNING,
        Pace(batch=6, rows_per_s=50.5, batch_s=0.25, lag=12),
        Totals(batches=7, messages=100, published=70, repeated=3, refused=2, unmatched=6), held=5,
        merger_failures=4, restarts=1, at_s=99.0,
    )  # fmt: skip
    board.show([busy, StreamStatus("failed", State.FAILED)])
    found = scraped(board)
    assert {name: value for name, value in found.items() if "busy" in name} == {
        f'{PREFIX}{name}{{query="busy"}}': value
        for name, value in {
            "running": 1, "failed": 0, "batches_total": 7, "messages_total": 100,
            "published_total": 70, "repeated_total": 3, "dead_letters_total": 2,
            "unmatched_removals_total": 6, "restarts_total": 1, "batch": 6, "batch_seconds": 0.25,
            "rows_per_second": 50.5, "lag_messages": 12, "held_keys": 5, "merger_failures": 4,
            "status_timestamp_seconds": 99,
        }.items()
    }  # fmt: skip
    assert found[f'{PREFIX}failed{{query="failed"}}'] == 1
    assert found[f'{PREFIX}running{{query="failed"}}'] == 0
    assert f'{PREFIX}lag_messages{{query="failed"}}' not in found


def test_before_anything_runs_there_are_families_without_samples() -> None:
    assert scraped(MetricsSink()) == {}
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with (
        serving_metrics(MetricsSink(), 0, LOOPBACK) as port,
        pytest.raises(UsageInvalid, match=f"^no metrics on 127.0.0.1:{port}: address already"),
        serving_metrics(MetricsSink(), port, LOOPBACK),
    ):
        pass


@pytest.mark.parametrize("port", [-1, 65_536])
def test_what_is_no_port_is_one_sentence(port: int) -> None:
    with (
        pytest.raises(UsageInvalid, match=f"^--metrics-port: expected 1 to 65535, not {port}$"),
        serving_metrics(MetricsSink(), port, LOOPBACK),
    ):
        pass
