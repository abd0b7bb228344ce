"""The same conflation in polars: the newest message of each key and interval, count and first."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

import polars as pl

FIELDS = {"tickerId": pl.String, "exchange": pl.String, "type": pl.String, "ts": pl.Int64}
KEY = ["tickerId", "exchange", "type"]
SECOND_MS = 1_000


class Outcome(NamedTuple):
    """Sums over the delivered rows, to compare two implementations."""

    rows: int
    messages: int
    value_bytes: int
    first_positions: int
    last_positions: int


def deliveries(path: Path) -> Outcome:
    """Return the sums of exactly the deliveries of `pace=batch` at 1 s.

    An interval begins with the first message after the end of the previous one. Polars has no such
    window, so a loop of ours finds the beginnings; polars does everything else. The clock never
    runs backwards, and positions are line numbers from 1.
    """
    ticks = _parsed(path).with_row_index("position", offset=1).collect(engine="streaming")
    clock = ticks["ts"].cum_max()
    openings = pl.Series("opening", _openings(clock.to_list(), SECOND_MS))
    interval = openings.search_sorted(clock, side="right").alias("interval")
    rows = ticks.lazy().with_columns(interval).group_by([*KEY, "interval"]).agg(
        pl.col("line").last(), pl.len().alias("messages"),
        pl.col("position").first().alias("first"), pl.col("position").last().alias("last"),
    )  # fmt: skip
    sums = [
        pl.col("messages").sum(), pl.col("line").str.len_bytes().sum().alias("value_bytes"),
        pl.col("first").cast(pl.Int64).sum(), pl.col("last").cast(pl.Int64).sum(),
    ]  # fmt: skip
    return Outcome(*rows.select(pl.len().alias("rows"), *sums).collect().row(0))


def tumbling(path: Path) -> int:
    """Return the number of rows of windows at whole seconds, by polars' streaming engine alone."""
    windows = _parsed(path).with_columns((pl.col("ts") // SECOND_MS).alias("second"))
    rows = windows.group_by([*KEY, "second"]).agg(
        pl.col("line").last(), pl.col("ts").first().alias("first_ms"), pl.len().alias("messages")
    )
    # without the sums the optimizer would drop the columns
    sent = rows.select(pl.len(), pl.col("line").str.len_bytes().sum(), pl.col("messages").sum())
    return int(sent.collect(engine="streaming").item(0, 0))


def counted(path: Path) -> int:
    """Return how many rows polars parses into the same fields."""
    return int(_parsed(path).select(pl.col("ts").count()).collect(engine="streaming").item())


def _parsed(path: Path) -> pl.LazyFrame:
    lines = pl.scan_lines(path, name="line")
    tick = pl.col("line").str.json_decode(pl.Struct(FIELDS)).alias("tick")
    return lines.with_columns(tick).unnest("tick")


def _openings(clock_ms: list[int], interval_ms: int) -> list[int]:
    """Return the beginning of each interval: the first message at or after the previous end."""
    found, place = [], 0
    while place < len(clock_ms):
        found.append(clock_ms[place])
        place = bisect_left(clock_ms, clock_ms[place] + interval_ms, place)
    return found
