"""A lasting port is free, and none that the kernel gives away."""

from __future__ import annotations

import random
import socket

import pytest

from tests.support import ports
from tests.support.ports import lasting_port


def test_it_is_below_what_is_given_to_those_who_ask_for_any() -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        assert ports.LOWEST <= lasting_port() < given.getsockname()[1]


def test_one_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", lasting_port())) as taken:
        free = lasting_port()
        drawn = iter((taken.getsockname()[1], free))
        monkeypatch.setattr(ports._chance, "randrange", lambda low, high: next(drawn))
        assert lasting_port() == free


def test_workers_with_the_same_seed_draw_other_ports() -> None:
    found = set()
    for _ in range(5):
        random.seed(1)
        found.add(lasting_port())
    assert len(found) > 1
