"""Three gateways on one Redis keep their promises while everything around them breaks."""

from __future__ import annotations

import shutil

import pytest

from tests.campaign.campaign import Campaign, Result
from tests.campaign.report import story
from tests.support.outside import require
from tests.support.profiles import SEED

SHORT_S, SHORT_PACE_S = 5.0, 0.8
LONG_S, LONG_PACE_S = 120.0, 5.0


async def run(seed: int, seconds: float, fsync: str, pace_s: float) -> Result:
    require(shutil.which("redis-server") is not None, "no redis server")
    result = await Campaign(seed, seconds, fsync, pace_s=pace_s, tell=print).run()
    assert not result.findings, "\n".join(story(result))
    return result


@pytest.mark.redis
@pytest.mark.system
async def test_gateways_keep_their_promises_while_all_around_them_breaks() -> None:
    result = await run(1, SHORT_S, "everysec", SHORT_PACE_S)
    assert result.sums["messages acknowledged"] > 0
    failovers = sum(count for name, count in result.faults.items() if name.startswith("failover"))
    assert min(failovers, *(result.faults[each] for each in CLASSES)) > 0


CLASSES = ("redis kills", "gateway kills", "partitions")


@pytest.mark.redis
@pytest.mark.nightly
@pytest.mark.parametrize("fsync", ["everysec", "always"])
async def test_gateways_keep_their_promises_for_longer(fsync: str) -> None:
    """A failure names its seed: `python -m tests.campaign --seed N --seconds 120` repeats it."""
    await run(SEED, LONG_S, fsync, LONG_PACE_S)
