"""This machine's figures are read for real."""

from __future__ import annotations

import msgspec
import psutil

from tidegate.app.demo.machine import PROGRAMS_MAX, Machine


def test_each_figure_has_a_key_of_its_own() -> None:
    figures = Machine().read()
    names = [(figure.kind, figure.name) for figure in figures]
    assert len(set(names)) == len(names)
    kinds = {kind for kind, _ in names}
    assert {"core", "memory", "network", "program"} <= kinds
    assert len([kind for kind, _ in names if kind == "core"]) == psutil.cpu_count()
    assert len([kind for kind, _ in names if kind == "program"]) <= PROGRAMS_MAX


def test_rates_are_of_what_was_counted_meanwhile() -> None:
    machine = Machine()
    machine.read()
    for figure in machine.read():
        if figure.kind == "network":
            assert figure.in_bytes_s is not None
            assert figure.in_bytes_s >= 0


def test_a_message_leaves_out_what_it_does_not_have() -> None:
    memory = next(figure for figure in Machine().read() if figure.kind == "memory")
    told = msgspec.json.decode(msgspec.json.encode(memory))
    assert set(told) == {"kind", "name", "percent", "used_bytes"}
    assert told["used_bytes"] > 0
