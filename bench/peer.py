"""The same task in polars: the newest of each key and second of a recorded day, with counts."""

from __future__ import annotations

from pathlib import Path

import polars as pl

FIELDS = {"tickerId": pl.String, "exchange": pl.String, "type": pl.String, "ts": pl.Int64}
KEY = ["tickerId", "exchange", "type"]
SECOND_MS = 1_000


def tumbling(path: Path) -> int:
    """How many rows go out, with windows that begin at whole seconds, in polars' streaming engine.

    The easier task: our interval begins with the first message that is held, which no window of
    polars' does, and ours sends the message's own text.
    """
    parsed = (
        pl.scan_lines(path, name="line")
        .with_columns(pl.col("line").str.json_decode(pl.Struct(FIELDS)).alias("tick"))
        .unnest("tick")
        .with_columns((pl.col("ts") // SECOND_MS).alias("second"))
    )
    rows = parsed.group_by([*KEY, "second"]).agg(
        pl.col("line").last(), pl.col("ts").first().alias("first_ms"), pl.len().alias("messages")
    )
    # a sum over what goes out keeps the optimizer from leaving it out
    sent = rows.select(pl.len(), pl.col("line").str.len_bytes().sum(), pl.col("messages").sum())
    return int(sent.collect(engine="streaming").item(0, 0))


def counted(path: Path) -> int:
    """How many rows polars parses to the same fields."""
    parsed = pl.scan_lines(path, name="line").select(
        pl.col("line").str.json_decode(pl.Struct(FIELDS)).struct.field("ts").count()
    )
    return int(parsed.collect(engine="streaming").item())
