"""Faults of streams that hold something between batches: pace=key in event time, and a view.

What they have to send follows from what was published alone, wherever batches begin and whatever
is tried again: the sinks are held against the engine, and against counts made anew.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.faults.kinds.pipeline_faults import OF_STAGES
from tests.faults.setups.gateway import Setup
from tests.faults.setups.pipeline import (
    ROWS_PER_BATCH,
    PipelineChild,
    messages_of,
    publish_lines,
)
from tests.pipeline.event_time import Timed, event_deliveries
from tests.support.network.turnstile import Hold, Turnstile, turnstile

HELD, VIEW = "held", "view"
MESSAGES, KEYS = 300, 7
STEP_MS, JITTER_MS, LATENESS_MS = 5, 60, 75
REDUCERS = ("/n:count@count", "/n:sum@sum")
OPTIONS = f"conflation=100ms,pace=key,reduce=[{','.join(REDUCERS)}]"
TOML = f"""\
gateway = "{{gateway}}"
[pipeline.{HELD}]
key = ["/k"]
interval = "100ms"
pace = "key"
time = {{{{field = "/t", watermark = "{LATENESS_MS}ms", unit = "ms"}}}}
reduce = {json.dumps(REDUCERS)}
rows_per_batch = {{rows}}
source = {{{{kind = "tidegate", topic = "raw"}}}}
sink = {{{{topic = "{HELD}"}}}}
[pipeline.{VIEW}]
record_key = ["/n"]
grouping = ["/k"]
projection = ["COUNT(/n) AS /count", "SUM(/n) AS /sum"]
interval = "100ms"
rows_per_batch = {{rows}}
source = {{{{kind = "tidegate", topic = "raw"}}}}
sink = {{{{topic = "{VIEW}"}}}}
"""
TOO_BUSY, RUNS_MAX = "Python worker failed to connect back", 3
OF_AN_END = b'.end","'
Rows = dict[str, list[dict[str, Any]]]
"""What a sink topic has of each key, in its order."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A place at which the driver is killed: of which sinks, which commit, before it or after."""

    name: str
    sinks: tuple[str, ...]
    answered: bool = False
    is_end: bool = False

    def holds(self, chance: random.Random) -> list[Hold]:
        """The requests at which it stands; of an end there is one."""
        passes, saying = (0, OF_AN_END) if self.is_end else (chance.randrange(2), OF_STAGES)
        return [
            Hold("POST", f"/v1/topics/{sink}/commits", passes, self.answered, saying)
            for sink in self.sinks
        ]


BEFORE_COMMIT = Kill("held and not committed", (HELD, VIEW))
AFTER_COMMIT = Kill("committed and not noted", (HELD, VIEW), answered=True)
BEFORE_END = Kill("the end is held and not committed", (HELD,), is_end=True)
AFTER_END = Kill("the end is committed and not noted", (HELD,), answered=True, is_end=True)
SHORT = (BEFORE_COMMIT, AFTER_END)
FULL = (BEFORE_COMMIT, AFTER_COMMIT, BEFORE_END, AFTER_END)


async def held_state_killed(setup: Setup, short: bool) -> None:
    """`kill -9` of the driver between what it holds and its commit, and after that."""
    published = _published(setup)
    await publish_lines(setup.gateway.address, [one.body or b"" for one in published])
    async with turnstile(setup.gateway.address) as relay:
        late: list[Hold] = []
        for kill in SHORT if short else FULL:
            late = await _killed(setup, relay, kill, late)
        await _ends(setup, relay)
    expected = {HELD: _deliveries(published), VIEW: _counts(published)}
    for sink, rows in expected.items():
        found = _by_key(await messages_of(setup.gateway.address, sink))
        setup.findings += judge(sink, found, rows)
        setup.figures.append(f"{sink}: {sum(map(len, found.values()))} rows")


async def _killed(setup: Setup, relay: Turnstile, kill: Kill, late: list[Hold]) -> list[Hold]:
    """A run that is killed where it stands; what an earlier one asked arrives meanwhile."""
    holds = [relay.hold(hold) for hold in kill.holds(setup.chance)]
    async with _running(setup, relay) as running:
        for hold in holds:
            reached = await running.gets_to(hold.reached)
            setup.expect(reached, f"{kill.name}: it did not get there: {running.logged[-500:]}")
        if kill is BEFORE_COMMIT:
            setup.expect(_holds_more(setup.folder), "nothing was held that is not committed")
        for hold in late:
            hold.released.set()
    return holds


async def _ends(setup: Setup, relay: Turnstile) -> None:
    """Run to the end; once more where Spark's worker did not start in ten seconds."""
    for _ in range(RUNS_MAX):
        async with _running(setup, relay) as running:
            status = await running.exit_status()
        if TOO_BUSY not in running.logged:
            break
        setup.figures.append("started again: the machine was too busy for a worker")
    setup.expect(status == 0, f"it ended with {status}: {running.logged[-500:]}")


def _running(setup: Setup, relay: Turnstile) -> PipelineChild:
    return PipelineChild(setup.folder, relay.address, "--available-now", toml=TOML)


def _holds_more(folder: Path) -> bool:
    """Whether the tables of a batch are there that Spark does not know to be done."""
    checkpoint = folder / "checkpoints" / HELD
    held = [int(path.name) for path in (checkpoint / "held").glob("0*")]
    done = [int(path.name) for path in (checkpoint / "spark" / "commits").glob("[0-9]*")]
    return max(held, default=-1) > max(done, default=-1)


def _published(setup: Setup) -> list[Timed]:
    """Numbered messages of a few keys, not in the order of their times."""
    chance, found = setup.chance, []
    for n in range(MESSAGES):
        time_ms = 1_000_000 + n * STEP_MS + chance.randrange(JITTER_MS)
        body = b'{"k":"%d","n":%d,"t":%d}' % (n % KEYS, n, time_ms)
        found.append(Timed(n + 1, time_ms, f'["{n % KEYS}"]', body))
    return found


def _deliveries(published: Sequence[Timed]) -> Rows:
    """What the engine makes of them, on the timeline of the watermark."""
    rows = event_deliveries(published, LATENESS_MS, OPTIONS)
    return _by_key(json.loads(row.value or b"") for row in rows)


def _counts(published: Sequence[Timed]) -> Rows:
    """Each group after each batch."""
    found: Rows = defaultdict(list)
    for beyond in range(ROWS_PER_BATCH, len(published) + 1, ROWS_PER_BATCH):
        for group in range(KEYS):
            numbers = range(group, beyond, KEYS)
            row = {"k": str(group), "count": len(numbers), "sum": sum(numbers)}
            found[str(group)].append(row)
    return found


def _by_key(rows: Iterable[dict[str, Any]]) -> Rows:
    found: Rows = defaultdict(list)
    for row in rows:
        found[row["k"]].append(row)
    return found


def judge(sink: str, found: Rows, expected: Rows) -> Iterator[str]:
    """Where a sink differs from what it has to have."""
    for name in sorted(found.keys() | expected.keys()):
        rows, wanted = found.get(name, []), expected.get(name, [])
        if rows != wanted:
            pairs = zip_longest(rows, wanted)
            at, (row, other) = next(
                (at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1]
            )
            yield (
                f"{sink}: key {name} has {len(rows)} rows, not {len(wanted)}; "
                f"row {at} is {row}, not {other}"
            )
