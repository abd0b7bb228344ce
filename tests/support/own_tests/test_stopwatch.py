"""What the machine withheld is not what was taken."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tests.support.clocks import stopwatch as module
from tests.support.clocks.stopwatch import Stopwatch, waited_for_a_core_s

NOBODY = 1 << 30


def test_what_was_withheld_is_not_what_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, withheld_s = [100.0], {1: 5.0, 2: 7.0, os.getpid(): 1.0}
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(module, "LOOK_EVERY_S", 3_600.0)  # at the begin and at the end alone
    monkeypatch.setattr(module, "_family", lambda pid: [1, 2, NOBODY])
    monkeypatch.setattr(module, "waited_for_a_core_s", withheld_s.get)
    with Stopwatch(1) as watch:
        now_s[0] += 10
        withheld_s.update({1: 5.5, 2: 9.0, os.getpid(): 1.25})
    assert watch.taken_s == 10 - 2.0 - 0.25, "of who waited longest, and of the test"


def test_who_is_gone_waits_for_nothing() -> None:
    with Stopwatch(NOBODY) as watch:
        pass
    assert watch.taken_s < 60
    assert waited_for_a_core_s(NOBODY) is None
    assert waited_for_a_core_s(os.getpid()) is not None
