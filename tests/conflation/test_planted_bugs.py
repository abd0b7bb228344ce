"""The state machine finds bugs: each is one line of a copy of the shipped code, made wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dev import ROOT
from tests.support.search import FOUND

EXAMPLES_MAX = 800
EXAMPLES_CLEAN = 60

pytestmark = pytest.mark.slow

# What breaks: the file, its line, and what stands there instead.
PLANTED = {
    "an interval of a lane is twice as long": (
        "conflation/lane.py",
        "            self.deadline = now + self.id.interval_ns",
        "            self.deadline = now + 2 * self.id.interval_ns",
    ),
    "a deadline counts from the clock's zero, not from the message": (
        "conflation/key_lane.py",
        "        due = -(-(now + self.id.interval_ns) // self._tick_ns) * self._tick_ns",
        "        due = -(-now // self._tick_ns) * self._tick_ns",
    ),
    "a deadline is rounded down to the tick": (
        "conflation/key_lane.py",
        "        due = -(-(now + self.id.interval_ns) // self._tick_ns) * self._tick_ns",
        "        due = (now + self.id.interval_ns) // self._tick_ns * self._tick_ns",
    ),
    "a lane due this very moment stays": (
        "conflation/schedule.py",
        "        if deadline is None or deadline > now:",
        "        if deadline is None or deadline >= now:",
    ),
    "the last key of a flush is lost": (
        "conflation/key_lane.py",
        "        rows = [frame for _, frame in frames]",
        "        rows = [frame for _, frame in frames][:-1]",
    ),
    "a superseded row is sent to a member behind": (
        "conflation/key_lane.py",
        "            if board_key not in self._held and frame.offset > member.cut:",
        "            if frame.offset > member.cut:",
    ),
    "a member behind gets what the lane still holds": (
        "conflation/lane.py",
        "        return self.board.changes(member.position, until=self.position)",
        "        return self.board.changes(member.position)",
    ),
    "the last row of a batch comes again": (
        "conflation/lane.py",
        "        member.position = batch.position",
        "        member.position = batch.position - 1",
    ),
    "the lane's position is one too far": (
        "conflation/lane.py",
        "        since, self.position = self.position, self.board.head",
        "        since, self.position = self.position, self.board.head + 1",
    ),
    "an answer begins one row too early": (
        "conflation/board.py",
        "            if frame.offset <= since:",
        "            if frame.offset < since:",
    ),
    "the order is reversed": (
        "conflation/board.py",
        "        found.reverse()",
        "        found.sort(key=lambda frame: -frame.offset)",
    ),
    "rows held at the join come from the lane as well": (
        "conflation/lane.py",
        "        return self.board.head",
        "        return self.position",
    ),
    "rows of the snapshot come again by key": (
        "conflation/key_lane.py",
        "        return fresh and newer and batch.since == member.position",
        "        return batch.since == member.position",
    ),
    "a lane by key hears only its first message": (
        "conflation/feed.py",
        "            if not lane.sees_every_message:",
        "            if True:",
    ),
    "an id promises the key that is held": (
        "conflation/key_lane.py",
        "        return self.board.head if first_held is None else first_held - 1",
        "        return self.board.head if first_held is None else first_held",
    ),
    "a piece of a backlog promises the whole": (
        "conflation/lane.py",
        "            position, low_water = self.row_position(frames[-1]), None",
        "            position, low_water = self.row_position(frames[-1]), self.low_water()",
    ),
    "a resume skips a message": (
        "conflation/opening.py",
        "        missed = topic.journal.after(bookmark.offset)",
        "        missed = topic.journal.after(bookmark.offset + 1)",
    ),
    "a full queue is not conflated": (
        "conflation/list_lane.py",
        "        member.conflated_to = self.board.head",
        "        member.conflated_to = member.position",
    ),
    "a queue may be one too long": (
        "conflation/session.py",
        "        return messages > self.limits.messages_max or size > self.limits.bytes_max",
        "        return messages > self.limits.messages_max + 1 or size > self.limits.bytes_max",
    ),
    "what waited at the end is not counted as dropped": (
        "conflation/accounting.py",
        "        dropped=last.waiting,",
        "        dropped=0,",
    ),
    "a batch is counted as one delivery": (
        "conflation/lane.py",
        "        member.delivered += len(batch.frames)",
        "        member.delivered += 1",
    ),
    "a session is never announced again": (
        "conflation/engine.py",
        "        session.ready = bool(outputs)",
        "        session.ready = True",
    ),
    "a conflation key is its first field": (
        "keys/extract.py",
        "        return join_key([_lenient(text) for text in fields_of(payload)])",
        "        return join_key([_lenient(text) for text in fields_of(payload)][:1])",
    ),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the shipped packages."""
    for package in ("conflation", "keys"):
        shutil.copytree(ROOT / package, tmp_path / package)
    return tmp_path


def search(copy: Path, examples: int) -> subprocess.CompletedProcess[str]:
    """The state machine in a process of its own, over the copy."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-P", "-m", "tests.support.search", str(copy), str(examples)]
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(copy: Path, name: str) -> None:
    file, line, wrong = PLANTED[name]
    text = (copy / file).read_text()
    assert text.count(f"\n{line}\n") == 1, f"{file} has changed: plant this bug anew"
    (copy / file).write_text(text.replace(f"\n{line}\n", f"\n{wrong}\n"))
    run = search(copy, EXAMPLES_MAX)
    assert run.returncode == FOUND, run.stderr or "the bug was not found"


def test_nothing_is_found_where_nothing_was_planted(copy: Path) -> None:
    run = search(copy, EXAMPLES_CLEAN)
    assert run.returncode == 0, run.stdout + run.stderr
