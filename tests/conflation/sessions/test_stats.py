"""Counters are values that cannot change after they were read."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.manual_driver import ManualDriver


def test_a_reading_stays_what_it_was() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s")
    before = driver.engine.stats()
    driver.publish("a1")
    assert before.topics[0].matched == 0
    assert driver.engine.stats().topics[0].matched == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.topics[0].matched = 9  # type: ignore[misc]  # frozen, as is shown


def test_flushes_and_sessions_are_counted() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s")
    for _ in range(3):
        driver.publish("a1")
        driver.wait("1s")
    stats = driver.engine.stats()
    assert (stats.sessions, stats.flushes) == (1, 3)
