"""`dev.py bench faults`: crashes at random instants, and the catalogue of other faults."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.faults.children import GatewayChild, RedisChild
from bench.faults.report import Progress, Section, crash_rows, tell, write
from bench.faults.voyage import Tally, Voyage, crash_of

RUNS_PER_VOYAGE = 10
PARTS = {
    "embedded": "kill -9 of the gateway, embedded store",
    "everysec": "kill -9 of Redis, AOF everysec",
    "always": "kill -9 of Redis, AOF always",
}


def main(words: list[str]) -> int:
    """Run what is asked for; 1 if anything was found wrong."""
    given = _arguments(words)
    broken = 0
    for part in given.only or PARTS:
        runs = given.runs or (200 if part == "embedded" else 100)
        progress = Progress(PARTS[part], runs)
        tally = asyncio.run(crashes(part, runs, given.seconds, given.seed, progress.step))
        command = f"dev.py bench faults --only {part} --runs {runs} --seconds {given.seconds:g}"
        section = Section(PARTS[part], f"python3 {command}", crash_rows(tally))
        print(section.text(), flush=True)
        tell(tally.findings)
        if given.write is not None:
            write(given.write, section)
        broken += len(tally.findings)
    return 1 if broken else 0


async def crashes(
    part: str, runs: int, load_s_max: float, seed: int, told: Callable[[], None]
) -> Tally:
    """So many crashes, on a new store after every few."""
    tally = Tally()
    while tally.runs < runs:
        length = min(RUNS_PER_VOYAGE, runs - tally.runs)
        with tempfile.TemporaryDirectory(prefix="tidegate-faults-") as name:
            sail = _embedded if part == "embedded" else _redis
            tally.add(await sail(Path(name), part, length, load_s_max, seed, told))
        seed += 1
    return tally


async def _embedded(
    folder: Path, part: str, runs: int, load_s_max: float, seed: int, told: Callable[[], None]
) -> Tally:
    log = folder / "gateway.log"
    async with GatewayChild("--data", str(folder / "store"), log=log) as gateway:
        await gateway.start()
        return await Voyage(gateway.address, crash_of(gateway), seed).sail(runs, load_s_max, told)


async def _redis(
    folder: Path, part: str, runs: int, load_s_max: float, seed: int, told: Callable[[], None]
) -> Tally:
    binary = redis_binary()
    async with RedisChild(binary, folder, part) as redis:
        await redis.start()
        async with GatewayChild("--redis", redis.url, log=folder / "gateway.log") as gateway:
            await gateway.start()
            voyage = Voyage(gateway.address, crash_of(redis), seed)
            return await voyage.sail(runs, load_s_max, told)


def redis_binary() -> str:
    """A Redis or Valkey on PATH.

    Raises:
        SystemExit: there is none.
    """
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        raise SystemExit("No redis-server and no valkey-server on PATH.")
    return found


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev.py bench faults", description=__doc__)
    parser.add_argument("--runs", type=int, metavar="N", help="crashes of each kind (200, 100)")
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="of load before a crash, at most (0.5)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first voyage (1)")
    parser.add_argument("--only", action="append", choices=[*PARTS], help="only these crashes")
    parser.add_argument(
        "--write", type=Path, metavar="PAGE.md", help="put the tables into a page as well"
    )
    return parser.parse_args(words)
