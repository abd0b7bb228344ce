"""Computation is bounded by the CPU time it takes, not by the clock."""

from __future__ import annotations

import signal
import time

import pytest

from tests.support.deadlines import computed


@pytest.mark.system
def test_what_computes_for_ever_is_killed() -> None:
    assert computed(["-c", "while True: pass"], cpu_s_max=1).returncode == -signal.SIGXCPU


@pytest.mark.system
def test_what_waits_for_a_core_is_not() -> None:
    began_at = time.monotonic()
    ended = computed(["-c", "import time; time.sleep(2); print(1)"], cpu_s_max=1)
    assert (ended.returncode, ended.stdout) == (0, "1\n")
    assert time.monotonic() - began_at >= 2
