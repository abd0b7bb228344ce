"""`tidegate publish TOPIC [FILE or -]`: messages from a file or from standard input."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from app.cli.arguments import Parser, add_gateway, add_topic
from app.cli.connection import gateway_at
from app.cli.errors import DONE
from app.cli.terminal import complain, progress, say, tell

if TYPE_CHECKING:
    from app.cli.lines import Line
    from clients.errors import GatewayProblem
    from clients.gateway import Gateway
    from clients.publishing import Published

PATIENCE_S = 60.0


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "publish", help="publish messages from a file or standard input", allow_abbrev=False
    )
    add_topic(parser)
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        default="-",
        help="NDJSON or .csv, .gz of either; - or nothing: NDJSON on standard input",
    )
    parser.add_argument(
        "--rate",
        metavar="RATE",
        help="5000 (messages a second), or 2x (twice the recorded speed); default: at once",
    )
    parser.add_argument(
        "--time-field",
        metavar="PATH",
        help="field with each message's time, such as /ts (milliseconds, or an ISO time)",
    )
    add_gateway(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Publish in requests of 1,000 lines; print count, rate and the last bookmark.

    A request that gets no answer is sent again for a minute, and nothing is doubled by it.
    """
    from app.cli.lines import read_lines
    from app.cli.pace import batches, parse_rate

    schedule = parse_rate(arguments.rate, arguments.time_field)
    messages, last = 0, None
    with (
        gateway_at(arguments, PATIENCE_S) as gateway,
        progress("publishing", "messages") as advance,
    ):
        started_at = time.monotonic()
        try:
            for batch in batches(read_lines(arguments.file), schedule):
                published = _publish(gateway, arguments.topic, batch)
                messages, last = messages + published.messages, published.last
                advance(published.messages)
        except BaseException:
            if messages:  # what was taken stays published, whatever comes after it
                say(_summary(arguments.topic, messages, time.monotonic() - started_at, last))
            raise
    tell(_summary(arguments.topic, messages, time.monotonic() - started_at, last))
    return DONE


def _publish(gateway: Gateway, topic: str, batch: list[Line]) -> Published:
    """One request; a refusal names the line of the file, not of the request."""
    from clients.errors import GatewayProblem

    try:
        return gateway.publish(topic, [line.text for line in batch], trouble=complain)
    except GatewayProblem as problem:
        if problem.line is not None and 0 < problem.line <= len(batch):
            raise _located(problem, batch[problem.line - 1].number) from None
        raise


def _located(problem: GatewayProblem, line: int) -> GatewayProblem:
    from clients.errors import GatewayProblem

    return GatewayProblem(
        problem.status, problem.code, problem.title, problem.detail, problem.position, line
    )


def _summary(topic: str, messages: int, took_s: float, last: str | None) -> str:
    rate = messages / max(took_s, 1e-3)
    return (
        f"Published {messages:,} message{'s' * (messages != 1)} to {topic} in {took_s:.1f} s "
        f"({rate:,.0f} a second), last bookmark {last or 'none'}"
    )
