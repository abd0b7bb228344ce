"""Every fault of the catalogue, played once and briefly: what must survive it has survived."""

from __future__ import annotations

import pytest

from tests.faults.catalogue import FAULTS, Fault, play
from tests.support.outside import require

pytestmark = pytest.mark.nightly

SEED = 7
SPARK_S_MAX = 1_800  # some of its waits are as long as HANGS_S
# What they are about takes longer than a test may; `python -m tests.faults` plays them.
LONG_PLAYS = ("F5b", "F6b", "F8")


def needs(fault: Fault) -> list[pytest.MarkDecorator]:
    marks = []
    if "Redis" in fault.what:
        marks.append(pytest.mark.redis)
    if "Spark" in fault.what or "pipeline" in fault.what:
        marks += [pytest.mark.spark, pytest.mark.timeout(SPARK_S_MAX)]
    return marks


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name, marks=needs(fault))
        for fault in FAULTS
        if fault.name not in LONG_PLAYS
    ],
)
async def test_a_fault_is_survived(fault: Fault) -> None:
    outcome = await play(fault, SEED, short=True)
    require(not outcome.not_run, outcome.not_run)
    assert outcome.findings == []


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("F4a", "no redis-server and no valkey-server on PATH"),
        ("F5a", "no strace on PATH"),
    ],
)
async def test_a_fault_that_cannot_be_played_here_says_why(
    monkeypatch: pytest.MonkeyPatch, name: str, lacks: str
) -> None:
    [fault] = [each for each in FAULTS if each.name == name]
    monkeypatch.setenv("PATH", "")
    assert (await play(fault, SEED)).not_run == lacks
