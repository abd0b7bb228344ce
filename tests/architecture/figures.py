"""How far a reader has to go to follow one message, in figures that may only fall.

`python -m tests.architecture.figures` prints each figure with its bound; `test_figures.py` checks
them. Nothing bounds the length or the number of files.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import grimp

from dev import ROOT
from tests.support.clocks.jumping_loop import JumpingLoop
from tests.support.gateways import eventually, running_gateway
from tidegate.app.streams.session import State

SERVER = ("app", "conflation", "keys")  # the client of a measurement is in this process as well
ROUNDS = 3  # of a measurement: background work adds a file now and then, so the least counts


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest value that a figure may have."""

    value: float

    def admits(self, figure: float) -> bool:
        """Whether a figure keeps to it."""
        return figure <= self.value

    def __str__(self) -> str:
        return f"at most {self.value:,g}"


BOUNDS = {
    "longest import chain in app": Bound(20),
    "longest import chain in conflation": Bound(17),
    "longest import chain in keys": Bound(11),
    "longest import chain in pipeline": Bound(18),
    "longest import chain in clients": Bound(6),
    # With the checks of the request, which are made each time.
    "calls of a publish before the engine": Bound(91),
    "files entered by one published message": Bound(48),
    "files entered by one subscription": Bound(62),
}


async def figures() -> dict[str, float]:
    """Every figure of `BOUNDS`, by its name."""
    entered, calls = await files_entered(), await calls_before_engine()
    graph = grimp.build_graph("tidegate", cache_dir=None)
    return {
        **{
            f"longest import chain in {name}": len(longest_chain(graph, f"tidegate.{name}"))
            for name in ("app", "conflation", "keys", "pipeline", "clients")
        },
        "calls of a publish before the engine": calls,
        "files entered by one published message": entered[0],
        "files entered by one subscription": entered[1],
    }


def longest_chain(graph: grimp.ImportGraph, package: str) -> list[str]:
    """The modules of a package along its longest chain of imports, the importer first."""
    inside = {package, *graph.find_descendants(package)}
    imports = {each: graph.find_modules_directly_imported_by(each) & inside for each in inside}
    return longest_path(imports)


def longest_path(arrows: dict[str, set[str]]) -> list[str]:
    """The longest path along arrows.

    Raises:
        ValueError: the arrows go round in a circle.
    """
    found: dict[str, list[str]] = {}
    open_: set[str] = set()

    def path_from(start: str) -> list[str]:
        if start not in found:
            if start in open_:
                raise ValueError(f"a circle through {start}")
            open_.add(start)
            paths = (path_from(each) for each in sorted(arrows[start]))
            found[start] = [start, *max(paths, key=len, default=[])]
        return found[start]

    return max((path_from(each) for each in sorted(arrows)), key=len)


async def files_entered() -> tuple[int, int]:
    """How many files of ours run for one published message, and for one new subscription.

    One gateway in this process, one subscriber with an interval. A message counts from its request
    to the event at the subscriber, a subscription until it has its snapshot.
    """
    published, subscribed = [], []
    async with running_gateway() as running:
        await running.topic()
        states = running.gateway.sessions.states
        for number in range(ROUNDS):
            entered = Calls()
            with entered:
                subscription = running.subscribe("conflation=20ms")
                stream = await subscription.__aenter__()
                await stream.until("group_end")
            subscribed.append(entered.files)
            try:
                entered = Calls()
                with entered:
                    await running.publish({"k": "a", "n": number})
                    await stream.until("message")
                published.append(entered.files)
            finally:
                await subscription.__aexit__(None, None, None)
            # What the gateway does for an end is not a part of the next subscription.
            await eventually(lambda: not states()[State.ATTACHED], "its session has ended")
    return min(published), min(subscribed)


async def calls_before_engine() -> int:
    """How many functions of ours run from the first byte of a plain publish to the engine."""
    counts = []
    async with running_gateway() as running:
        await running.topic()
        for _ in range(ROUNDS):
            calls = Calls()
            with calls:
                await running.publish({"k": "a"})
            counts.append(calls.between("GatewayProtocol.data_received", "Engine.publish"))
    return min(counts)


class Calls:
    """Records the calls of functions of the server in its block, in this thread."""

    def __init__(self) -> None:
        self._calls: list[CodeType] = []
        self._before: Callable[..., Any] | None = None

    def __enter__(self) -> None:
        self._before = sys.getprofile()
        sys.setprofile(self._called)

    def __exit__(self, *raised: object) -> None:
        sys.setprofile(self._before)

    @property
    def files(self) -> int:
        """How many files the functions are of."""
        return len({called.co_filename for called in self._of_server()})

    def between(self, first: str, last: str) -> int:
        """How many calls there are from that of one function to that of another, with both."""
        names = [called.co_qualname for called in self._of_server()]
        begin = names.index(first)
        return names.index(last, begin) - begin + 1

    def _of_server(self) -> list[CodeType]:
        roots = tuple(f"{ROOT / name}/" for name in SERVER)
        files = {called.co_filename for called in self._calls}
        ours = {each for each in files if str(Path(each).resolve()).startswith(roots)}
        return [called for called in self._calls if called.co_filename in ours]

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._calls.append(frame.f_code)


def main() -> int:
    """Print every figure beside its bound; 1 if one is beyond."""
    content = True
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        found = runner.run(figures())
    for name, figure in found.items():
        admitted = BOUNDS[name].admits(figure)
        content &= admitted
        beyond = "" if admitted else "  <-- beyond its bound"
        sys.stdout.write(f"{name:42} {figure:>10,g}  {BOUNDS[name]}{beyond}\n")
    return 0 if content else 1


if __name__ == "__main__":
    sys.exit(main())
