"""A campaign: writers, readers and faults for a while; then everything heals and is judged."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.campaign.cluster import (
    BRIEF,
    GATEWAYS,
    KEPT,
    SAMPLE_S,
    TOPICS,
    Cluster,
    NeverHealed,
    cluster,
)
from tests.campaign.definer import Definer
from tests.campaign.faults import Faults
from tests.campaign.held import Held, definitions, held, replayed
from tests.campaign.judge import Case, Finding, Kind, judge_definitions, judge_gateways, judge_topic
from tests.campaign.ledger import Ledger
from tests.campaign.lineage import Position
from tests.campaign.reader import Reader, Return
from tests.campaign.testimony import differences, judge_positions, judge_reader
from tests.campaign.writer import Mark, Writer
from tests.faults.setups.gateway import CannotRun
from tidegate.app.cluster.redis_compat import raise_if_cancelled

RATE_PER_S = 3.0
REST_S_MAX, REST_LOOK_S = 90.0, 0.3
START_S_MAX = 180.0
END_S_MAX = 900.0
WRITERS = {
    KEPT: (
        Mark.KEYED,
        Mark.KEYED,
        Mark.KEYED,
        Mark.NUMBERED,
        Mark.NUMBERED,
        Mark.PLAIN,
        Mark.PLAIN,
    ),
    BRIEF: (Mark.KEYED, Mark.KEYED, Mark.NUMBERED, Mark.PLAIN, Mark.PLAIN),
}
DEFINERS = 2
TROUBLE = ("Traceback", '"level": "error"', " ERROR ")


@dataclass(slots=True, eq=False)
class Result:
    """What a campaign came to.

    Attributes:
        began_at_s: on the clock of all times in findings and notes.
        folder: the logs of gateways and Redis; it is left only if not all was well.
    """

    seed: int
    began_at_s: float = 0.0
    seconds: float = 0.0
    sums: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    folder: Path | None = None


def readers_of(topic: str, seed: int) -> list[Reader]:
    """Make one reader of each kind."""
    both, subscribe = "sow_and_subscribe", "subscribe"
    patches = "sow_and_delta_subscribe"
    kinds = [
        ("every", "conflation=none,oof", both, Return.BY_ID, ""),
        ("every row", "conflation=none", subscribe, Return.BY_ROW, ""),
        ("conflated", "conflation=100ms,oof,receipt", both, Return.BY_ID, ""),
        ("paced", "conflation=300ms,pace=key,oof,receipt", both, Return.BY_ID, ""),
        ("patched", "conflation=200ms,oof,receipt", patches, Return.BY_ID, ""),
        ("anew", "conflation=100ms,oof,receipt", both, Return.ANEW, ""),
        ("filtered", "conflation=100ms,oof,receipt", both, Return.BY_ID, "(/own = 1)"),
    ]
    return [
        Reader(f"{topic} {name}", topic, options, command, returns, seed, filter_text)
        for name, options, command, returns, filter_text in kinds
    ]


class Campaign:
    """One cluster, and all that happens to it."""

    def __init__(
        self, seed: int, seconds: float, fsync: str, *, pace_s: float, tell: Callable[[str], None]
    ) -> None:
        """Nothing is started yet.

        Args:
            seed: of all that is left to chance.
            seconds: how long there are faults.
            fsync: `appendfsync` of Redis.
            pace_s: the mean time between two faults of a lane.
            tell: is given a line of progress every ten seconds.
        """
        self.result = Result(seed)
        self._seconds = seconds
        self._fsync = fsync
        self._pace_s = pace_s
        self._tell = tell
        self._ledger = Ledger()
        self._writers = [
            Writer(topic, mark, number, RATE_PER_S, self._ledger, seed)
            for topic, marks in WRITERS.items()
            for number, mark in enumerate(marks)
        ]
        self._definers = [
            Definer(number, RATE_PER_S / 3, self._ledger, seed) for number in range(DEFINERS)
        ]
        self._readers = [reader for topic in TOPICS for reader in readers_of(topic, seed)]

    async def run(self) -> Result:
        """Run it to its end, whatever happens; what breaks it is a finding.

        Raises:
            CannotRun: there is no Redis.
        """
        result = self.result
        result.began_at_s = time.monotonic()
        result.folder = Path(tempfile.mkdtemp(prefix=f"tidegate-campaign-{result.seed}-"))
        try:
            async with asyncio.timeout(self._seconds + START_S_MAX + END_S_MAX):
                async with cluster(result.folder, result.seed, self._fsync) as found:
                    await self._play(found)
        except (NeverHealed, TimeoutError) as hung:
            text = str(hung) or "the campaign has not come to its end in time"
            self._found(Finding(Kind.ENDED, text, time.monotonic()))
        except CannotRun:
            shutil.rmtree(result.folder, ignore_errors=True)
            raise
        except Exception:  # the next campaign is to run all the same
            self._found(Finding(Kind.ENDED, traceback.format_exc(), time.monotonic()))
        result.seconds = time.monotonic() - result.began_at_s
        if result.findings:
            self._keep_notes(result.folder)
        else:
            shutil.rmtree(result.folder, ignore_errors=True)
            result.folder = None
        return result

    def _keep_notes(self, folder: Path) -> None:
        """Write what happened and what was asked beside the logs, with the times of the logs."""
        began_at_s = self.result.began_at_s
        began_at = datetime.fromtimestamp(time.time(), UTC) - timedelta(
            seconds=time.monotonic() - began_at_s
        )
        happened = [
            *self.result.notes,
            *((request.sent_at_s, f"asked: {request}") for request in self._ledger.requests),
            *(
                (finding.at_s, f"{finding.kind}: {finding.what}")
                for finding in self.result.findings
            ),
        ]
        with (folder / "notes.txt").open("w") as notes:
            for at_s, what in sorted(happened):
                at = began_at + timedelta(seconds=at_s - began_at_s)
                print(f"{at:%H:%M:%S.%f} {at_s - began_at_s:8.2f} s: {what}", file=notes)

    def _found(self, finding: Finding) -> None:
        self.result.findings.append(finding)
        self.result.sums[f"found: {finding.kind}"] += 1

    async def _play(self, found: Cluster) -> None:
        seed = self.result.seed
        faults = Faults(found, random.Random(f"{seed} faults"), self._pace_s)
        self.result.faults, self.result.notes = faults.counts, faults.notes
        until, rest = asyncio.Event(), asyncio.Event()
        readers = [reader.read(found.clients) for reader in self._readers]
        watching = [found.watch_readiness(at, faults.notes) for at in range(GATEWAYS)]
        async with _running(*readers, *watching, self._watch(found, faults)):
            working = [
                *(writer.write(found.clients, rest) for writer in self._writers),
                *(definer.define(found.clients, rest) for definer in self._definers),
            ]
            async with _running(*working) as tasks, _running(faults.strike(until)) as [striking]:
                await asyncio.wait([striking, *tasks], timeout=self._seconds)
                until.set()
                await striking
                self._tell("all faults are over")
                await found.heal()
                rest.set()
                # A request that says which one it is is repeated until it is acknowledged.
                _, waiting = await asyncio.wait(tasks, timeout=REST_S_MAX)
                if waiting:
                    what = f"{len(waiting)} writers are not answered although all is healed"
                    self._found(Finding(Kind.ENDED, what, time.monotonic()))
            await self._judge(found, faults)
        for what in faults.findings:
            self._found(Finding(Kind.ENDED, what))
        self._logs(found)
        self._sum(found)

    async def _watch(self, found: Cluster, faults: Faults) -> None:
        """Note epochs as they come, and tell how far it is."""
        told_at = time.monotonic()
        while True:
            raise_if_cancelled()
            await found.note_epochs()
            if time.monotonic() - told_at >= 10:
                told_at = time.monotonic()
                sums = self._ledger.sums()
                rows = sum(len(reader.seen) for reader in self._readers)
                struck = ", ".join(f"{count} {name}" for name, count in faults.counts.items())
                since_s = told_at - self.result.began_at_s
                self._tell(
                    f"{since_s:.0f} s: {sums['messages acknowledged']} messages acknowledged, "
                    f"{rows} rows read; {struck}"
                )
            await asyncio.sleep(SAMPLE_S)

    # What there is in the end

    async def _judge(self, found: Cluster, faults: Faults) -> None:
        for topic in TOPICS:
            warm = await self._at_rest(found, topic)
            for finding in judge_gateways(topic, warm, await self._server(found, topic)):
                self._found(finding)
            lineage = found.lineages[topic]
            for each in warm:
                lineage.note(each.head.epoch, dict(each.continues))
            case = Case(
                topic, self._ledger, lineage, faults.losses, warm[0], faults.deaths, found.unready
            )
            for finding in judge_topic(case):
                self._found(finding)
            await self._judge_readers(topic, case)
            await self._judge_replays(found, case)
        defined = [await definitions(http) for http in found.clients]
        for finding in judge_definitions(self._ledger, defined, faults.losses):
            self._found(finding)
        for refusal in self._ledger.refusals:
            self._found(Finding(Kind.REFUSED, refusal))
        await self._judge_restarted(found)

    async def _server(self, found: Cluster, topic: str) -> tuple[str, int]:
        epoch, _ = await found.primary.chain(topic)
        return epoch, (await found.primary.heads([topic]))[topic]

    async def _at_rest(self, found: Cluster, topic: str) -> list[Held]:
        """Read what gateways hold once all are at the head of Redis, or do not come to it."""
        read: list[Held] = []

        async def are_at_rest() -> bool:
            read[:] = [await held(http, topic) for http in found.clients]
            server = Position(*await self._server(found, topic))
            return all(each.head == server for each in read)

        if not await _comes_to(are_at_rest):
            what = "the gateways do not come to the head of Redis"
            self._found(Finding(Kind.ENDED, what, time.monotonic(), topic))
            read[:] = [await held(http, topic) for http in found.clients]
        return read

    async def _judge_readers(self, topic: str, case: Case) -> None:
        readers = [reader for reader in self._readers if reader.topic == topic]

        async def hold_the_same() -> bool:
            return not any(differences(reader, case.held) for reader in readers)

        if not await _comes_to(hold_the_same):
            for reader in readers:
                for key in differences(reader, case.held):
                    what = f"{reader.name} does not hold {case.held.world.get(key)}"
                    self._found(Finding(Kind.READER, what, time.monotonic(), topic, key))
        for reader in readers:
            for finding in judge_reader(reader, case):
                self._found(finding)
        for finding in judge_positions(topic, self._ledger, readers):
            self._found(finding)

    async def _judge_replays(self, found: Cluster, case: Case) -> None:
        """Read the journal after some bookmarks, of epochs that have ended too, at each gateway."""
        given = [
            request.last for request in self._ledger.of(case.topic) if request.last is not None
        ]
        chance = random.Random(self.result.seed)
        for bookmark in chance.sample(given, min(12, len(given))):
            if bookmark.offset < case.held.first - 1:
                continue
            is_valid = case.lineage.continues(case.held.head.epoch, bookmark)
            expected = [at.offset for at in case.held.journal if at.offset > bookmark.offset]
            for at, http in enumerate(found.clients):
                offsets = await replayed(http, case.topic, bookmark)
                if offsets != (expected if is_valid else None) and not self._is_forgotten(
                    case, bookmark
                ):
                    shown = "a refusal" if offsets is None else f"{len(offsets)} messages"
                    what = f"gateway {at} replays {shown} after {bookmark}, of {len(expected)}"
                    self._found(Finding(Kind.DIFFERS, what, topic=case.topic))

    def _is_forgotten(self, case: Case, bookmark: Position) -> bool:
        """Return whether the topic has had so many epochs that this one is not known any more."""
        return (
            bookmark.epoch != case.held.head.epoch
            and bookmark.epoch not in case.held.continues
            and len(case.held.continues) >= 30
        )

    async def _judge_restarted(self, found: Cluster) -> None:
        """A gateway that starts now reads everything from Redis; it has to hold the same."""
        at = self.result.seed % len(found.gateways)
        await found.gateways[at].kill()
        await found.gateways[at].start()
        for topic in TOPICS:
            all_held = await self._at_rest(found, topic)
            for finding in judge_gateways(topic, all_held, await self._server(found, topic)):
                self._found(finding)

    def _logs(self, found: Cluster) -> None:
        for at, gateway in enumerate(found.gateways):
            lines = gateway.logged.splitlines()
            for number, line in enumerate(lines):
                if any(mark in line for mark in TROUBLE):
                    text = " / ".join(_entry(lines[number:]))
                    self._found(Finding(Kind.ENDED, f"the log of gateway {at}: {text}"))
                    break

    def _sum(self, found: Cluster) -> None:
        sums = self.result.sums
        sums.update(self._ledger.sums())
        sums["rows read"] = sum(len(reader.seen) for reader in self._readers)
        sums["epochs"] = sum(lineage.epochs for lineage in found.lineages.values())
        sums["starts of gateways"] = sum(gateway.starts for gateway in found.gateways)


async def _comes_to(condition: Callable[[], Awaitable[bool]]) -> bool:
    """Wait until a condition holds; return False if it does not. Each look reads everything."""
    until_s = time.monotonic() + REST_S_MAX
    while not await condition():
        if time.monotonic() > until_s:
            return False
        await asyncio.sleep(REST_LOOK_S)
    return True


def _entry(lines: Sequence[str]) -> list[str]:
    """Return the first entry of a log: up to the next line that begins with a date."""
    end = next((at for at, line in enumerate(lines) if at and line[:2] == "20"), len(lines))
    return [*lines[: min(end, 8)], *lines[max(end - 30, 8) : end]]


@contextlib.asynccontextmanager
async def _running(
    *work: Coroutine[Any, Any, None],
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run this meanwhile; an error of one of them is raised at the end."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error
