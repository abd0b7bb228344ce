"""`tidegate top`: live topics and sessions, redrawn on a terminal, NDJSON into a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tidegate.app.cli.arguments import COUNT, SECONDS, connect, for_option, gateway_option
from tidegate.app.cli.printing import Column, table_of
from tidegate.app.cli.terminal import DONE, print_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidegate.clients.gateway import Gateway

Document = Mapping[str, Any]

RATES = {"messages_in": "in_per_s", "delivered": "out_per_s", "conflated": "conflated_per_s"}
"""Counters of a topic, each with the name of its rate."""

SHOWN_OF_TOPIC = ("topic", *RATES, "keys", "bytes", "subscriptions", "lanes")
LINES_AROUND = 9  # the heads of two tables with their rules, and a line for the prompt

TOPIC_COLUMNS: Mapping[str, Column] = {
    "topic": lambda topic: topic["topic"],
    "in/s": lambda topic: topic["in_per_s"],
    "out/s": lambda topic: topic["out_per_s"],
    "conflated/s": lambda topic: topic["conflated_per_s"],
    "keys": lambda topic: topic["keys"],
    "bytes": lambda topic: topic["bytes"],
    "subscriptions": lambda topic: topic["subscriptions"],
    "lanes": lambda topic: topic["lanes"],
}
SESSION_COLUMNS: Mapping[str, Column] = {
    "session": lambda session: session["session"],
    "state": lambda session: session["state"],
    "subscriptions": lambda session: session["subscriptions"],
    "topics": lambda session: ", ".join(session["topics"]),
    "queued": lambda session: session["queue"]["messages"],
    "queued/s": lambda session: session["queued_per_s"],
    "queued bytes": lambda session: session["queue"]["bytes"],
    "unsent bytes": lambda session: session["unsent_bytes"],
}


@click.command(epilog="\b\nExamples:\n  tidegate top\n  tidegate top --interval 5s")
@click.option(
    "--interval", type=SECONDS, default="1s", show_default=True, help="Time between two samples."
)
@click.option("--count", type=COUNT, metavar="N", help="Stop after N samples.")
@for_option
@gateway_option
def top(interval: float, count: int | None, seconds_max: float | None, gateway: str) -> int:
    """Show topics and sessions live, the busiest first.

    Rates are counted since the previous sample. In a pipe, each sample is a line of JSON.
    """
    with connect(gateway) as client:
        samples = _samples(client, interval, count, seconds_max)
        if sys.stdout.isatty():
            _draw(samples)
        else:
            for sample in samples:
                print_line(msgspec.json.encode(sample).decode())
    return DONE


def _samples(
    client: Gateway, interval: float, count: int | None, seconds_max: float | None
) -> Iterator[dict[str, list[Document]]]:
    """Poll until the count or the time is reached."""
    ends_at = None if seconds_max is None else time.monotonic() + seconds_max
    topics: list[Document] = []
    sessions: list[Document] = []
    taken_at, taken = 0.0, 0
    while True:
        now = time.monotonic()
        # Polled: figures change all the time, and a subscription would be one of the sessions.
        topics_before, topics = topics, list(client.topics())
        sessions_before, sessions = sessions, list(client.administration.sessions())
        yield {
            "topics": rated_topics(topics, topics_before, now - taken_at),
            "sessions": rated_sessions(sessions, sessions_before, now - taken_at),
        }
        taken, taken_at = taken + 1, now
        if taken == count:
            return
        # From the start of the sample, so that a slow gateway does not stretch the interval.
        next_at = now + interval
        if ends_at is not None and ends_at < next_at:
            time.sleep(max(0.0, ends_at - time.monotonic()))
            return
        time.sleep(max(0.0, next_at - time.monotonic()))


def rated_topics(
    topics: Sequence[Document], before: Sequence[Document], took_s: float
) -> list[Document]:
    """Return what is shown of topics, with their rates.

    A topic without a previous sample has no rate, nor has a counter that went back: its gateway was
    restarted. An unusable topic has no figures.
    """
    # With the epoch: a topic that was recreated counts from zero.
    known = {(topic["topic"], topic["epoch"]): topic for topic in before}
    rated: list[Document] = []
    for topic in topics:
        old = known.get((topic["topic"], topic["epoch"]), {})
        shown = {name: topic.get(name) for name in SHOWN_OF_TOPIC}
        for counter, rate in RATES.items():
            is_known = counter in topic and counter in old
            grown = topic[counter] - old[counter] if is_known else -1
            shown[rate] = None if grown < 0 else round(grown / took_s)
        rated.append(shown)
    return sorted(rated, key=lambda it: (-(it["in_per_s"] or 0), it["topic"]))


def rated_sessions(
    sessions: Sequence[Document], before: Sequence[Document], took_s: float
) -> list[Document]:
    """Return sessions, the fullest queue first, with the rate at which it fills."""
    known = {session["session"]: session["queue"]["messages"] for session in before}
    rated: list[Document] = []
    for session in sessions:
        queued, old = session["queue"]["messages"], known.get(session["session"])
        # May be negative: a queue that drains is as worth knowing as one that fills.
        rate = None if old is None else round((queued - old) / took_s)
        rated.append({**session, "queued_per_s": rate})
    return sorted(rated, key=lambda it: (-it["queue"]["messages"], it["session"]))


def _draw(samples: Iterator[dict[str, list[Document]]]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    # Redrawn only with each sample; rich would otherwise repaint the same page four times a second.
    with Live(console=console, auto_refresh=False) as live:
        for sample in samples:
            live.update(page(sample, console.height - LINES_AROUND), refresh=True)


def page(sample: dict[str, list[Document]], lines_max: int) -> RenderableType:
    """Return two tables that fit on a terminal; sessions get the lines left, at least a third."""
    from rich.console import Group
    from rich.text import Text

    topics, sessions = sample["topics"], sample["sessions"]
    # A page longer than the terminal would scroll, and Live could not draw over it.
    of_topics = min(len(topics), max(1, lines_max - min(len(sessions), lines_max // 3)))
    of_sessions = max(1, lines_max - of_topics)
    left = [
        f"{len(topics) - of_topics} more topics" if len(topics) > of_topics else "",
        f"{len(sessions) - of_sessions} more sessions" if len(sessions) > of_sessions else "",
    ]
    return Group(
        table_of(topics[:of_topics], TOPIC_COLUMNS),
        table_of(sessions[:of_sessions], SESSION_COLUMNS),
        Text(", ".join(filter(None, left)), style="dim"),
    )
