"""Crash runs: one store through many crashes; its writers and subscribers stay through all."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx2

from tests.faults.checks.ledger import Ledger, Level, Sender
from tests.faults.checks.oracle import Finding, judge_journal, judge_records, judge_world
from tests.faults.checks.subscriber import Subscriber, judge_rate, judge_visits, subscribing
from tests.faults.checks.writer import Writer, writing
from tests.faults.setups.children import Child
from tests.faults.setups.held import LONG, SHORT, Held, define, held
from tests.faults.setups.waiting import happens
from tests.support.deadlines import HANGS_S, LOOPS_S

CATCH_UP_S_MAX = HANGS_S / 2  # shorter than a run may take: who never catches up is a finding
SELDOM_S = 1.0
WRITERS = [
    ("numbered", Sender.NUMBERED, Level.PERSISTED),
    ("keyed", Sender.KEYED, Level.PERSISTED),
    ("plain", Sender.PLAIN, Level.PERSISTED),
    ("hasty", Sender.PLAIN, Level.PROCESSED),
]
"""Writers of each topic, with what they wait for."""


@dataclass(slots=True, eq=False)
class Tally:
    """What runs came to, summed up."""

    runs: int = 0
    findings: list[str] = field(default_factory=list)
    sums: Counter[str] = field(default_factory=Counter)
    ready_s: list[float] = field(default_factory=list)
    caught_up_s: list[float] = field(default_factory=list)

    def found(self, where: str, findings: list[Finding] | list[str]) -> None:
        """Note what was wrong in a run."""
        self.findings += (f"{where}: {finding}" for finding in findings)
        self.sums.update(finding.kind for finding in findings if isinstance(finding, Finding))

    def add(self, other: Tally) -> None:
        """Take over what another has."""
        self.runs += other.runs
        self.findings += other.findings
        self.sums.update(other.sums)
        self.ready_s += other.ready_s
        self.caught_up_s += other.caught_up_s


Crash = Callable[[random.Random], Awaitable[float]]
"""Brings something down and up again; how long the way up took, in seconds."""


class CrashRuns:
    """Runs on one store: load, crash, recovery, and everything held against the ledgers."""

    def __init__(
        self,
        address: str,
        crash: Crash,
        seed: int,
        *,
        keeps: bool = True,
        catch_up_s_max: float = CATCH_UP_S_MAX,
    ) -> None:
        """Nothing is reached yet.

        Args:
            address: of the gateway.
            crash: what happens in each run.
            seed: of all that is left to chance.
            keeps: whether the fault may cost nothing; else a loss has to show as a new epoch.
            catch_up_s_max: how long subscribers may take to have what there is.
        """
        self.tally = Tally()
        self._address = address
        self._crash = crash
        self._seed = seed
        self._keeps = keeps
        self._catch_up_s_max = catch_up_s_max
        self._chance = random.Random(seed)
        self._ledgers = {LONG: Ledger(), SHORT: Ledger()}
        self._writers = [
            Writer(f"{topic}-{name}", topic, ledger, sender, level, seed)
            for topic, ledger in self._ledgers.items()
            for name, sender, level in WRITERS
        ]
        self._every = Subscriber(LONG, "conflation=none,oof", "subscribe")
        self._newest = [
            Subscriber(LONG, "conflation=50ms,oof"),
            Subscriber(SHORT, "conflation=50ms,pace=key,oof"),
        ]
        self._seldom = Subscriber(LONG, f"conflation={SELDOM_S:g}s,oof")
        self.subscribers = [self._every, *self._newest, self._seldom]

    async def run(
        self, runs: int, load_s: tuple[float, float], advance: Callable[[], None]
    ) -> Tally:
        """Make so many runs; each time the load lasts within these bounds before the crash."""
        async with httpx2.AsyncClient(
            base_url=self._address, timeout=HANGS_S, trust_env=False
        ) as http:
            await define(http)
            async with subscribing(self._address, self.subscribers):
                for number in range(runs):
                    async with asyncio.timeout(LOOPS_S):
                        await self._run(http, f"seed {self._seed} run {number}", load_s)
                    self.tally.runs += 1
                    advance()
            long = await held(http, LONG)
        every = list(judge_visits(self._every, long.epoch, long.journal))
        self.tally.found(f"seed {self._seed}", every)
        self._close()
        return self.tally

    async def _run(self, http: httpx2.AsyncClient, where: str, load_s: tuple[float, float]) -> None:
        async with writing(self._address, self._writers):
            await asyncio.sleep(self._chance.uniform(*load_s))
            known = {topic: ledger.last_epoch() for topic, ledger in self._ledgers.items()}
            self.tally.ready_s.append(await self._crash(self._chance))
            ready_at = time.monotonic()
        settled_at = time.monotonic()
        long, short = await held(http, LONG), await held(http, SHORT)
        await self._catch_up(where, long, short)
        self.tally.caught_up_s.append(time.monotonic() - settled_at)
        owed = {
            topic: 0.0 if self._keeps or known[topic] == now.epoch else ready_at
            for topic, now in ((LONG, long), (SHORT, short))
        }
        self.tally.sums["losses seen as a new epoch"] += sum(since > 0 for since in owed.values())
        journal = judge_journal(self._ledgers[LONG], long.epoch, long.journal, owed[LONG])
        self.tally.found(where, journal)
        self.tally.found(where, judge_world(long.journal, long.world))
        records = judge_records(self._ledgers[SHORT], short.world, owed[SHORT], short.epoch)
        self.tally.found(where, records)

    async def _catch_up(self, where: str, long: Held, short: Held) -> None:
        """Wait until every subscriber has what there is; who never has it is a finding."""
        if await happens(lambda: self._caught_up(long, short), self._catch_up_s_max):
            return
        for subscriber in (self._every, *self._newest):
            head = (long if subscriber.topic == LONG else short).head
            where_now = (
                f"{subscriber.topic} with {subscriber.options} is at {subscriber.head} of {head}"
            )
            self.tally.found(where, [f"subscribers never caught up: {where_now}"])

    def _caught_up(self, long: Held, short: Held) -> bool:
        worlds = {LONG: long.world, SHORT: short.world}
        return self._every.head >= long.head and all(
            subscriber.world() == worlds[subscriber.topic] for subscriber in self._newest
        )

    def rate_findings(self) -> list[str]:
        """Where a key came oftener than its interval."""
        return list(judge_rate(self._seldom, SELDOM_S, self._ledgers[LONG]))

    def _close(self) -> None:
        for ledger in self._ledgers.values():
            self.tally.sums.update(ledger.sums())
        for subscriber in self.subscribers:
            self.tally.sums["connections of subscribers"] += len(subscriber.visits)
            self.tally.sums["rows sent to subscribers"] += sum(
                len(visit.rows) for visit in subscriber.visits
            )
            for visit in subscriber.visits:
                self.tally.sums.update(f"resumed by {mode}" for mode in visit.modes)


def crash_of(child: Child, early: float = 0.1) -> Crash:
    """`kill -9` of a process and its start; now and then it is killed again while it starts."""

    async def crash(chance: random.Random) -> float:
        await child.kill()
        while chance.random() < early:
            await child.launch()
            await asyncio.sleep(chance.uniform(0, 1.5))
            await child.kill()
        return await child.start()

    return crash
