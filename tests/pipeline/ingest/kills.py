"""Kills a source, `tidegate ingest` and the gateway at random instants, and counts what arrived.

    python -m tests.pipeline.ingest.kills --kind kafka --messages 100000 --kills 21

prints a row of the table in `docs/evidence.md`. With `--kills 0` the source has all messages before
the command is started, and the row says how fast they are published. With `--outage 300` nothing is
killed but the gateway, which is away for so many seconds, while the source gets `--rate` messages a
second.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import psutil

from tests.pipeline.ingest.feeds import FEEDS, Feed, key_of
from tests.support import commands
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port
from tidegate.clients.gateway import Gateway

TOPIC = "t"
HISTORY = {"messages": 100_000_000, "bytes": "100GiB"}
PUT_MAX = 500
PAUSE_S_MAX = 0.5
POLL_S = 0.05
PADDING = 400
"""Characters of the messages during an outage: what is not bounded grows by more than a batch."""
BEFORE_S = 5.0
"""How long messages are published before an outage."""


@dataclass(frozen=True)
class Outcome:
    """What arrived of a source's messages, and what the processes used.

    Attributes:
        messages: put into the source; of a rate those that it counts.
        kills: of source, command and gateway together.
        lost: messages that are not in the topic.
        doubled: messages that are there again.
        out_of_order: messages behind a later one of their key, repetitions aside.
        memory: of the command at its largest, in bytes.
        command_cpu_s, gateway_cpu_s: from the first message on; without kills only.
    """

    messages: int
    kills: int
    seconds: float
    lost: int
    doubled: int
    out_of_order: int
    memory: int
    command_cpu_s: float = 0.0
    gateway_cpu_s: float = 0.0


@dataclass(frozen=True)
class Outage:
    """What arrived after an outage of the gateway, and the memory of the command at its largest.

    Attributes:
        outcome: of all; its `memory` is that at the end.
        memory_before: until the gateway went away.
        memory_away: until it came back.
    """

    outcome: Outcome
    memory_before: int
    memory_away: int


class World:
    """A gateway that keeps what it has, a command, and a feed; each can be killed."""

    def __init__(self, folder: Path, feed: Feed) -> None:
        self.feed = feed
        self.port = lasting_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.memory = 0
        self._data = folder / "data"
        self._log = folder / "ingest.log"
        self._definition = folder / "sources.toml"
        self._definition.write_text(
            f'gateway = "{self.address}"\n[ingest.a]\nkey = ["/k"]\n'
            f'source = {{{feed.source}}}\nsink = {{topic = "{TOPIC}"}}\n'
        )
        self.gateway = self._serve()
        with Gateway(self.address) as gateway:
            gateway.put_topic(TOPIC, {"key": ["/k"], "history": HISTORY})
        self.command: subprocess.Popen[bytes] | None = None

    def start_gateway(self) -> None:
        self.gateway = self._serve()

    def stop_gateway(self) -> None:
        self.gateway.kill()
        self.gateway.communicate(timeout=HANGS_S)

    def kill_gateway(self) -> None:
        self.stop_gateway()
        self.start_gateway()

    def start_command(self) -> None:
        with self._log.open("ab") as log:
            self.command = subprocess.Popen(
                commands.command("ingest", str(self._definition)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=commands.environment(),
                process_group=0,
            )

    def stop_command(self) -> None:
        if self.command is not None:
            self.note_memory()
            self.command.kill()
            self.command.wait(HANGS_S)

    def kill_command(self) -> None:
        self.stop_command()
        self.start_command()

    def kill_source(self) -> None:
        self.feed.kill()
        self.feed.start()

    def note_memory(self) -> int:
        """Record and return how much memory the command has had at most."""
        assert self.command is not None
        assert self.command.poll() is None, self._log.read_text()
        status = Path(f"/proc/{self.command.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        self.memory = max(self.memory, int(peak.split()[1]) * 1024)
        return self.memory

    def close(self) -> None:
        if self.command is not None:
            self.command.kill()
            self.command.wait(HANGS_S)
        if self.gateway.poll() is None:
            self.stop_gateway()
        self.feed.close()

    def _serve(self) -> subprocess.Popen[str]:
        process = commands.start("serve", "--port", str(self.port), TIDEGATE_DATA=str(self._data))
        commands.address_of(process)
        return process


class Arrivals:
    """The numbers of the messages that a topic has, in its order."""

    def __init__(self, address: str) -> None:
        self.numbers: list[int] = []
        self._address = address
        self._bookmark = "epoch"

    def update(self) -> bool:
        """Read what has been added; return whether there is something."""
        before = len(self.numbers)
        with Gateway(self._address) as gateway:
            # An answer has a bounded number of lines.
            while page := [*gateway.messages(TOPIC, self._bookmark)]:
                lines = [msgspec.json.decode(each) for each in page]
                self.numbers += [each["value"]["n"] for each in lines]
                self._bookmark = lines[-1]["bookmark"]
        return len(self.numbers) > before

    def await_more(self) -> None:
        """Return when the topic has more messages than were read."""
        deadline = time.monotonic() + HANGS_S
        while not self.update():
            assert time.monotonic() < deadline, f"{len(self.numbers)} messages, and no more come"
            time.sleep(POLL_S)

    def await_all(self, count: int) -> None:
        """Return when the topic has so many different messages, or nothing comes any more."""
        deadline = time.monotonic() + HANGS_S
        while len(set(self.numbers)) < count and time.monotonic() < deadline:
            if self.update():
                deadline = time.monotonic() + HANGS_S
            else:
                time.sleep(POLL_S)
        # What comes twice may come last.
        time.sleep(1.0)
        self.update()

    def out_of_order(self) -> int:
        """Count messages behind a later one of their key."""
        newest: dict[int, int] = {}
        seen: set[int] = set()
        found = 0
        for number in self.numbers:
            if number not in seen and number < newest.get(key_of(number), -1):
                found += 1
            seen.add(number)
            newest[key_of(number)] = max(number, newest.get(key_of(number), -1))
        return found


class Feeding:
    """Puts messages into a feed, up to the number that is allowed."""

    def __init__(self, feed: Feed, chance: random.Random) -> None:
        self._feed = feed
        self._chance = random.Random(chance.random())
        self._changed = threading.Condition()
        self._allowed = 0
        self._put = 0
        self._stops = False

    def allow(self, count: int) -> None:
        """Let so many messages be put in all."""
        with self._changed:
            self._allowed = count
            self._changed.notify_all()

    def await_put(self, count: int) -> None:
        """Return when the feed has so many messages."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._stops or self._put >= count, HANGS_S * 2), (
                f"{self._put} of {count} messages were put"
            )
            assert self._put >= count, "the feed has failed"

    def stop(self) -> None:
        """End `run` after the current messages."""
        with self._changed:
            self._stops = True
            self._changed.notify_all()

    def run(self) -> None:
        """Put messages until stopped; runs in a thread of its own."""
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._stops or self._put < self._allowed)
                    if self._stops:
                        return
                    left = self._allowed - self._put
                size = min(left, self._chance.randint(1, PUT_MAX))
                self._feed.put(range(self._put, self._put + size))
                with self._changed:
                    self._put += size
                    self._changed.notify_all()
        finally:
            self.stop()


@contextmanager
def fed(feed: Feed, chance: random.Random) -> Iterator[Feeding]:
    """Feed messages during the block."""
    feeding = Feeding(feed, chance)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(feeding.run)
        try:
            yield feeding
        finally:
            feeding.stop()
            running.result(HANGS_S)


@contextmanager
def world_of(folder: Path, feed: Feed) -> Iterator[World]:
    """A world around a feed, ended with the block."""
    try:
        feed.start()
        world = World(folder, feed)
    except BaseException:
        feed.close()
        raise
    try:
        yield world
    finally:
        world.close()


def play(folder: Path, feed: Feed, messages: int, kills: int, seed: int) -> Outcome:
    """Put messages into a feed and kill source, command and gateway in turn meanwhile.

    Each kill follows a random number of messages that were put, half of them also progress of the
    topic, and a random pause; more messages are put during it.
    """
    chance = random.Random(seed)
    with world_of(folder, feed) as world, fed(feed, chance) as feeding:
        begun_s = time.monotonic()
        world.start_command()
        arrivals = Arrivals(world.address)
        instants = sorted(chance.sample(range(1, messages + 1), kills))
        turn: list[Callable[[], None]] = []
        for instant, following in zip(instants, [*instants[1:], messages], strict=True):
            feeding.allow(following)
            feeding.await_put(instant)
            if chance.random() < 0.5 and len(arrivals.numbers) < instant:
                arrivals.await_more()
            time.sleep(chance.uniform(0, PAUSE_S_MAX))
            if not turn:
                turn = [world.kill_command, world.kill_gateway, world.kill_source]
                chance.shuffle(turn)
            turn.pop()()
        feeding.allow(messages)
        feeding.await_put(messages)
        return counted(world, arrivals, messages, kills, begun_s)


def counted(world: World, arrivals: Arrivals, messages: int, kills: int, begun_s: float) -> Outcome:
    """Wait until all messages are there, and count them."""
    arrivals.await_all(messages)
    world.note_memory()
    counts = Counter(arrivals.numbers)
    return Outcome(
        messages=messages,
        kills=kills,
        seconds=time.monotonic() - begun_s,
        lost=len(set(range(messages)) - counts.keys()),
        doubled=counts.total() - len(counts),
        out_of_order=arrivals.out_of_order(),
        memory=world.memory,
    )


def measure(folder: Path, feed: Feed, messages: int) -> Outcome:
    """Publish what a source has, and measure how long that takes and what it costs."""
    with world_of(folder, feed) as world, fed(feed, random.Random(0)) as feeding:
        feeding.allow(messages)
        feeding.await_put(messages)
        arrivals = Arrivals(world.address)
        world.start_command()
        # From the first messages on: the start of the command is another figure.
        while not (first := count_arrived(world)):
            time.sleep(POLL_S)
        begun_s = time.monotonic()
        before = cpu_seconds(world)
        while count_arrived(world) < messages:
            time.sleep(POLL_S)
        took_s = time.monotonic() - begun_s
        after = cpu_seconds(world)
        outcome = counted(world, arrivals, messages, 0, begun_s)
        return replace(
            outcome,
            messages=messages - first,
            seconds=took_s,
            command_cpu_s=after[0] - before[0],
            gateway_cpu_s=after[1] - before[1],
        )


def count_arrived(world: World) -> int:
    """Return how many messages the topic has, which costs the gateway nearly nothing."""
    with Gateway(world.address) as gateway:
        return int(gateway.topic(TOPIC)["journal"]["messages"])


def cpu_seconds(world: World) -> tuple[float, float]:
    """Return the CPU seconds that command and gateway have used."""
    assert world.command is not None
    times = [psutil.Process(each.pid).cpu_times() for each in (world.command, world.gateway)]
    return (times[0].user + times[0].system, times[1].user + times[1].system)


def outlast(folder: Path, feed: Feed, rate: int, outage_s: float) -> Outage:
    """Put messages into a feed at a rate, and take the gateway away meanwhile."""
    feed.padding = PADDING
    with world_of(folder, feed) as world, fed(feed, random.Random(0)) as feeding:
        begun_s = time.monotonic()
        world.start_command()
        arrivals = Arrivals(world.address)
        feeding.allow(rate)
        arrivals.await_more()
        messages = paced(feeding, rate, rate, BEFORE_S)
        memory_before = world.note_memory()
        world.stop_gateway()
        messages = paced(feeding, messages, rate, outage_s)
        memory_away = world.note_memory()
        world.start_gateway()
        return Outage(counted(world, arrivals, messages, 1, begun_s), memory_before, memory_away)


def paced(feeding: Feeding, put: int, rate: int, seconds: float) -> int:
    """Let messages be put at a rate for some time; return how many have been put in all."""
    begun_s = time.monotonic()
    while (passed_s := time.monotonic() - begun_s) < seconds:
        feeding.allow(put + int(rate * passed_s))
        time.sleep(POLL_S)
    put += int(rate * seconds)
    feeding.allow(put)
    feeding.await_put(put)
    return put


def row(kind: str, outcome: Outcome) -> str:
    """Return a line of the table in `docs/evidence.md`."""
    if outcome.kills or not outcome.command_cpu_s:
        figures: list[object] = [f"{outcome.kills}", f"{outcome.seconds:,.0f}"]
    else:
        per_million = 1e6 / outcome.messages
        figures = [
            f"{outcome.messages / outcome.seconds:,.0f}",
            f"{outcome.command_cpu_s * per_million:.1f}",
            f"{outcome.gateway_cpu_s * per_million:.1f}",
        ]
    counts = [outcome.lost, outcome.doubled, outcome.out_of_order]
    cells = [kind, f"{outcome.messages:,}", *figures, *counts, f"{outcome.memory / 1e6:.0f} MB"]
    return "| " + " | ".join(map(str, cells)) + " |"


def outage_row(kind: str, outage: Outage) -> str:
    """Return a line of the table of outages in `docs/evidence.md`."""
    outcome = outage.outcome
    peaks = (outage.memory_before, outage.memory_away, outcome.memory)
    cells: list[object] = [kind, f"{outcome.messages:,}", f"{outcome.seconds:,.0f}"]
    cells += [outcome.lost, outcome.doubled, outcome.out_of_order]
    cells += [f"{each / 1e6:.0f} MB" for each in peaks]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.ingest.kills")
    parser.add_argument("--kind", choices=FEEDS, required=True)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=21)
    parser.add_argument("--outage", type=float, help="seconds without a gateway, and no kills")
    parser.add_argument("--rate", type=int, default=2_000, help="messages a second of an outage")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    options = parser.parse_args()
    # Not below the user's own: servers of other users have to enter it.
    with tempfile.TemporaryDirectory(prefix="tidegate-kills-") as name:
        folder = Path(name)
        feed = FEEDS[options.kind](folder)
        if options.outage is not None:
            outage = outlast(folder, feed, options.rate, options.outage)
            print(outage_row(options.kind, outage), flush=True)
            return
        if options.kills:
            outcome = play(folder, feed, options.messages, options.kills, options.seed)
        else:
            outcome = measure(folder, feed, options.messages)
    print(f"{row(options.kind, outcome)} seed {options.seed}", flush=True)


if __name__ == "__main__":
    main()
