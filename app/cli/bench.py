"""`tidegate bench URL`: what a running gateway delivers, and how late, from this machine."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from tidegate.app.cli.arguments import COUNT, SECONDS, connect
from tidegate.app.cli.pipeline import run_suite
from tidegate.app.cli.terminal import DONE, CommandError, pointing, print_line, progress

if TYPE_CHECKING:
    from tidegate.clients.aio.gateway import AsyncGateway

TOPIC = "tidegate-bench"
TICK_S = 0.02  # messages due within one tick share a request: shorter sleeps are not precise
LABEL_WIDTH = 12


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a gateway: messages a second over so many keys, and who follows them."""

    rate: int
    keys: int
    subscribers: int
    options: str
    seconds: float


@dataclass
class Measured:
    """The counts of one run.

    Attributes:
        ages_ms: the time from publication to arrival; both ends read the same clock.
    """

    published: int = 0
    delivered: int = 0
    took_s: float = 0.0
    ages_ms: list[float] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the figures, rounded to their precision."""
        ages = sorted(self.ages_ms) or [0.0]
        per_s = 1.0 / max(self.took_s, 1e-9)
        shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        return {
            "published_per_s": round(self.published * per_s),
            "delivered_per_s": round(self.delivered * per_s),
            "age_ms": {
                name: round(ages[min(len(ages) - 1, int(share * len(ages)))], 1)
                for name, share in shares.items()
            },
        }


@click.command(
    epilog="\b\nExample:\n  tidegate bench http://127.0.0.1:8080 --rate 5000 --subscribers 100",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", metavar="[URL [OPTIONS] | SUITE...]", nargs=-1, type=click.UNPROCESSED)
def bench(words: tuple[str, ...]) -> int:
    """Measure a running gateway, or run the benchmark suite of a checkout.

    With a URL, such as http://127.0.0.1:8080, measures that gateway from this machine; its options
    are shown by `tidegate bench URL --help`. Otherwise runs SUITE.
    """
    if not words or "://" not in words[0]:
        run_suite(words)
    # A separate command parses the options, as those of a suite belong to the suite.
    code: int = measure.main(list(words), "tidegate bench", standalone_mode=False)
    return code


@click.command(
    epilog="\b\nExample:\n  tidegate bench http://127.0.0.1:8080 --rate 5000 --subscribers 100"
)
@click.argument("url")
@click.option("--rate", type=COUNT, default=1000, show_default=True, help="Messages a second.")
@click.option("--keys", "key_count", type=COUNT, default=100, show_default=True, help="Keys.")
@click.option("--subscribers", type=COUNT, default=10, show_default=True, help="Subscribers.")
@click.option("--options", default="conflation=100ms", show_default=True, help="Their options.")
@click.option("--for", "seconds", type=SECONDS, default="5s", show_default=True, help="Duration.")
def measure(
    url: str, rate: int, key_count: int, subscribers: int, options: str, seconds: float
) -> int:
    """Measure a running gateway.

    Creates the topic tidegate-bench, publishes to it, counts what subscribers get and how old it
    is, and deletes the topic. In a pipe the figures are one line of JSON.
    """
    load = Load(rate, key_count, subscribers, options, seconds)
    with connect(url) as client, pointing(options=options):
        if client.find_topic(TOPIC) is not None:
            raise CommandError(f"the gateway has a topic {TOPIC}: another run, or one cut off")
        client.put_topic(TOPIC, {"key": ["/id"]})
        try:
            found = asyncio.run(_measure(client.base_url, load))
        finally:
            client.delete_topic(TOPIC)
    _print(found.document())
    return DONE


async def _measure(address: str, load: Load) -> Measured:
    from tidegate.clients.aio.gateway import AsyncGateway

    found = Measured()
    loop = asyncio.get_running_loop()
    async with AsyncGateway(address) as gateway:
        begun = [loop.create_future() for _ in range(load.subscribers)]
        tasks = [asyncio.create_task(_count(gateway, load, each, found)) for each in begun]
        try:
            await asyncio.gather(*begun)
            with progress("publishing", "messages") as advance:
                await _publish(gateway, load, found, advance)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def _publish(
    gateway: AsyncGateway, load: Load, found: Measured, advance: Callable[..., None]
) -> None:
    """Publish at a rate; a gateway that cannot keep it up gets less, which the figures show."""
    began_at = time.monotonic()
    while (now := time.monotonic() - began_at) < load.seconds:
        due = int(load.rate * (now + TICK_S)) - found.published
        if due > 0:
            numbers = range(found.published, found.published + due)
            at = time.monotonic()
            lines = [b'{"id":%d,"at":%.6f}' % (number % load.keys, at) for number in numbers]
            await gateway.publish(TOPIC, lines)
            found.published += due
            advance(due, min(1.0, now / load.seconds))
        await asyncio.sleep(TICK_S)
    found.took_s = time.monotonic() - began_at


async def _count(
    gateway: AsyncGateway, load: Load, begun: asyncio.Future[None], found: Measured
) -> None:
    """Count what one subscriber gets; a refusal is the error of `begun`."""
    try:
        async with gateway.subscribe(
            TOPIC, options=load.options, command="subscribe", format="batch"
        ) as events:
            async for event in events:
                if event.name == "hello" and not begun.done():
                    begun.set_result(None)
                elif event.name == "message":
                    now, rows = time.monotonic(), event.fields["rows"]
                    found.delivered += len(rows)
                    found.ages_ms += [1000 * (now - row["value"]["at"]) for row in rows]
    except Exception as error:
        if begun.done():
            raise
        begun.set_exception(error)


def _print(document: dict[str, Any]) -> None:
    if not sys.stdout.isatty():
        print_line(json.dumps(document))
        return
    ages = document["age_ms"]
    for label, text in (
        ("published", f"{document['published_per_s']:,} messages a second"),
        ("delivered", f"{document['delivered_per_s']:,} rows a second, to all subscribers"),
        ("age", f"median {ages['p50']} ms, 99 % {ages['p99']} ms, most {ages['max']} ms"),
    ):
        print_line(f"{label:<{LABEL_WIDTH}} {text}")
