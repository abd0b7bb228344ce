"""Loss of power, emulated: files become what the last sync of each made sure of.

A process runs under strace, which notes every write. After `kill -9` each file is written anew:
all that was written before its last sync, and of what came later each write or not, by chance.
That a file is there at all, its name and its length at a truncation, is taken as safe.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.setups.waiting import happens
from tests.support.deadlines import HANGS_S

CALLS = "write,pwrite64,fsync,fdatasync,ftruncate,rename,unlink"
_CALL = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+)")
_PART = re.compile(r"^(\d+) +(?:<\.\.\. (\w+) resumed>(.*)|(\w+)\((.*) <unfinished \.\.\.>)$")
_FILE = re.compile(r"^-?\d+<([^>]*)>")
_TEXT = re.compile(r'^\d+<[^>]*>, "((?:\\x[0-9a-f]{2})*)", \d+(?:, (\d+))?$')
_NAMES = re.compile(r'"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes at a place; None: at the end. Without bytes the file is cut there."""

    place: int | None
    content: bytes | None


def command(trace: Path) -> tuple[str, ...]:
    """Words before a command that have what it writes noted; its process id stays its own."""
    noted = ("-xx", "-s", "1000000", "-e", f"trace={CALLS}")
    return ("strace", "-D", "-f", "-q", "-y", *noted, "-o", str(trace))


async def noted(trace: Path, pid: int) -> list[str]:
    """All that was noted of a process that was killed, once its end is noted too.

    Raises:
        TimeoutError: its end never was.
    """
    end = re.compile(rf"^{pid} +\+\+\+ ", re.MULTILINE)
    if not await happens(lambda: end.search(trace.read_text()) is not None, HANGS_S):
        raise TimeoutError("the end of the process was never noted")
    return (await asyncio.to_thread(trace.read_text)).splitlines()


class Disk:
    """What a folder's files would be after a loss of power, from what was noted of their writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = {
            str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        self._safe: dict[str, list[Write]] = defaultdict(list)
        self._loose: dict[str, list[Write]] = defaultdict(list)
        self._at_start: dict[str, int] = {}

    def follow(self, lines: Iterable[str]) -> None:
        """Take over what was noted."""
        for call in _calls(lines):
            if call.result is None:
                self._at_start[call.thread] = len(self._loose[_path_of(call.arguments)])
            elif call.result >= 0:
                self._take(call)

    def lose_power(self, chance: random.Random) -> int:
        """Make the files what is left of them; how many writes were lost."""
        lost = 0
        for path in {*self._before, *self._safe, *self._loose}:
            if path.endswith("-shm"):  # memory that a database shares: made anew at each start
                Path(path).unlink(missing_ok=True)
                continue
            kept = [write for write in self._loose[path] if chance.random() < 0.5]
            lost += len(self._loose[path]) - len(kept)
            if Path(path).exists():
                Path(path).write_bytes(
                    _written(self._before.get(path, b""), self._safe[path], kept)
                )
        return lost

    def _take(self, call: _Call) -> None:
        if call.name in ("rename", "unlink"):
            self._move(*map(_plain, _NAMES.findall(call.arguments)))
            return
        path = _path_of(call.arguments)
        if not path.startswith(f"{self._folder}/"):
            return
        loose = self._loose[path]
        if call.name in ("fsync", "fdatasync"):  # what was written while it ran may be left out
            safe = self._at_start.pop(call.thread, len(loose))
            self._safe[path] += loose[:safe]
            del loose[:safe]
        elif call.name == "ftruncate":
            self._safe[path] += loose
            self._safe[path].append(Write(int(call.arguments.rpartition(",")[2]), None))
            loose.clear()
        elif text := _TEXT.match(call.arguments):
            place = int(text[2]) if text[2] else None
            loose.append(Write(place, bytes.fromhex(text[1].replace("\\x", ""))))

    def _move(self, path: str, to: str = "") -> None:
        for kept in (self._before, self._safe, self._loose):
            if path in kept:
                moved = kept.pop(path)
                if to:
                    kept[to] = moved  # type: ignore[assignment]  # each into its own kind


@dataclass(frozen=True, slots=True)
class _Call:
    """One call; without a result it is under way."""

    thread: str
    name: str
    arguments: str
    result: int | None = None


def _calls(lines: Iterable[str]) -> Iterator[_Call]:
    """Calls by the order of their ends, and the beginnings of those that others overtook."""
    begun: dict[str, _Call] = {}
    for line in lines:
        part = _PART.match(line.rstrip())
        if part is not None and part[4]:
            begun[part[1]] = _Call(part[1], part[4], part[5])
            yield begun[part[1]]
            continue
        if part is not None and part[1] in begun:
            call = begun.pop(part[1])
            line = f"{call.thread} {call.name}({call.arguments}{part[3]}"
        ended = _CALL.match(line)
        if ended is not None:
            yield _Call(ended[1], ended[2], ended[3], int(ended[4]))


def _path_of(arguments: str) -> str:
    """The file of the descriptor that comes first; empty where it is no file."""
    found = _FILE.match(arguments)
    return "" if found is None else _plain(found[1])


def _plain(text: str) -> str:
    """Text in which each byte may be written as a number."""
    return bytes.fromhex(text.replace("\\x", "")).decode() if text.startswith("\\x") else text


def _written(before: bytes, *batches: list[Write]) -> bytes:
    content = bytearray(before)
    for write in (write for batch in batches for write in batch):
        place = len(content) if write.place is None else write.place
        if write.content is None:
            del content[place:]
            continue
        content += bytes(max(0, place - len(content)))
        content[place : place + len(write.content)] = write.content
    return bytes(content)
