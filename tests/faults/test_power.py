"""What a file has after a power failure: all that was synced, and any part of the rest."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.kinds.power import Disk, command, noted
from tests.support.outside import require

pytestmark = pytest.mark.nightly


def calls_on(path: Path, *calls: str) -> list[str]:
    return [call.replace("FD", f"3<{path}>") for call in calls]


WRITE_AB = r'7 pwrite64(FD, "\x61\x62", 2, 0) = 2'
WRITE_C = r'7 pwrite64(FD, "\x63", 1, 3) = 1'
ADD_D = r'7 write(FD, "\x64", 1) = 1'
SYNC = "7 fdatasync(FD) = 0"
SYNC_BEGINS, SYNC_ENDS = "8 fsync(FD <unfinished ...>", "8 <... fsync resumed>) = 0"


@pytest.mark.parametrize(
    ("calls", "left"),
    [
        ((WRITE_AB, SYNC), {b"ab"}),
        ((WRITE_AB,), {b"", b"ab"}),
        ((WRITE_AB, SYNC, WRITE_C), {b"ab", b"ab\0c"}),
        ((WRITE_AB, SYNC, WRITE_C, ADD_D), {b"ab", b"ab\0c", b"abd", b"ab\0cd"}),
        ((WRITE_AB, SYNC, "7 ftruncate(FD, 1) = 0"), {b"a"}),
        ((WRITE_AB, "7 fdatasync(FD) = -1"), {b"", b"ab"}),
        ((WRITE_AB, SYNC_BEGINS, WRITE_C, SYNC_ENDS), {b"ab", b"ab\0c"}),
        ((WRITE_AB, SYNC_BEGINS, WRITE_C), {b"", b"ab", b"\0\0\0c", b"ab\0c"}),
    ],
)
def test_what_was_synced_is_left_and_anything_of_the_rest(
    tmp_path: Path, calls: tuple[str, ...], left: set[bytes]
) -> None:
    path = tmp_path / "file"
    found = set()
    for seed in range(40):
        path.unlink(missing_ok=True)
        disk = Disk(tmp_path)
        path.touch()
        disk.follow(calls_on(path, *calls))
        disk.lose_power(random.Random(seed))
        found.add(path.read_bytes())
    assert found == left


SCRIPT = """
import os, sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("pragma journal_mode=wal")
base.execute(f"pragma synchronous={sys.argv[2]}")
base.execute("create table t(a)")
for number in range(50):
    base.execute("insert into t values(?)", (number,))
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(("synchronous", "loses"), [("full", False), ("normal", True)])
async def test_a_database_that_syncs_each_commit_keeps_it(
    tmp_path: Path, synchronous: str, loses: bool
) -> None:
    require(shutil.which("strace") is not None, "no strace")
    folder = tmp_path / "store"
    folder.mkdir()
    disk, trace = Disk(folder), tmp_path / "trace"
    words = [*command(trace), sys.executable, "-c", SCRIPT, str(folder / "db"), synchronous]
    process = await asyncio.create_subprocess_exec(*words)
    await process.wait()
    disk.follow(await noted(trace, process.pid))
    assert (disk.lose_power(random.Random(1)) > 0) is loses
    with closing(sqlite3.connect(folder / "db")) as base:
        tables = base.execute("select count(*) from sqlite_master").fetchone()[0]
        kept = base.execute("select count(*) from t").fetchone()[0] if tables else 0
    assert (kept < 50) is loses
