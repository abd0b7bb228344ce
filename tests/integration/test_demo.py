"""The demo with Spark: all three feeds deliver, and an interrupt ends all of it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.docs.site import block_run_by
from tests.support import leftovers
from tests.support.checkouts import BIN, copy_checkout, lend_environment
from tests.support.clocks.stopwatch import Stopwatch
from tests.support.commands import address_of, environment, start
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_java

CLEAN_END_S_MAX = 60.0
"""Five seconds are usual; what is not ended, as a Spark that has missed the interrupt, is there for
ever."""


def last_line(out: str) -> str:
    line = out.splitlines()[-1]
    assert line.startswith("Delivered: market ")
    return line


@pytest.mark.spark
@pytest.mark.nightly  # the same demo, run by the block of the page
def test_with_spark_all_three_feeds_deliver(tmp_path: Path) -> None:
    require_java()
    copy_checkout(tmp_path / "checkout")
    lend_environment(tmp_path / "checkout")
    demo = "dev.py demo"
    text = block_run_by(__file__).text
    assert text.count(demo) == 1
    process = subprocess.Popen(
        ["bash", "-c", text.replace(demo, f"{demo} --for 5s --port 0")],
        cwd=tmp_path / "checkout",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**environment(), "PATH": f"{BIN}:{os.environ['PATH']}"}, process_group=0,
    )  # fmt: skip
    leftovers.watch(process)
    out, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 0, out + err
    counts = [feed.split()[-1] for feed in last_line(out).split("; ")]
    assert len(counts) == 3
    assert "0" not in counts


@pytest.mark.spark
@pytest.mark.nightly
def test_an_interrupt_ends_spark_too() -> None:
    require_java()
    process = start("demo", "--port", "0")
    address_of(process)
    with Stopwatch(process.pid) as watch:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANGS_S)
    assert watch.taken_s < CLEAN_END_S_MAX
    assert (process.returncode, "Traceback" in err) == (130, False)
    assert "market.1s (Spark)" in last_line(out)
