"""The page on several gateways: its commands are valid, its figures are those of the code."""

from __future__ import annotations

import re
import shlex

import pytest

from dev import ROOT
from tests.support.commands import parsed
from tidegate.app.cluster import membership, peer_messages, peers, workers
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.persistence import persistence_fault
from tidegate.app.cluster.session_locations import LOCATION_MS

PAGE = " ".join((ROOT / "docs" / "many-gateways.md").read_text("utf-8").split())
COMMANDS = re.findall(r"tidegate serve --redis [^`]*?--port \d+(?: --workers \d+)?", PAGE)
FIGURES = [
    (f"was silent for {membership.SUSPECT_S} s", "who has died"),
    (f"is gone after {membership.DEAD_S:.0f} s without a heartbeat", "who is gone"),
    (f"does not answer within {peer_messages.REPLY_S_MAX:.0f} s", "who is silent"),
    (f"not answer within {peers.BROADCAST_S_MAX:.0f} s", "who is missing in a list"),
    (f"(at least {peers.TRANSFER_MS_MIN // 1_000} s)", "how long a session is left"),
    (f"ever longer, up to {workers.RESTART_S_MAX:.0f} s", "when a worker is started again"),
    (f"`shutdown_grace` and {workers.STOP_S_MAX:.0f} s", "when a worker is killed"),
    (f"at most {peer_messages.INBOX_MAX:,}", "an inbox"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_taken(command: str) -> None:
    name, *arguments = shlex.split(command)
    assert name == "tidegate"
    assert parsed(*arguments).command.callback


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 3


def test_the_first_command_starts_a_redis_that_a_gateway_accepts() -> None:
    block = (ROOT / "docs" / "many-gateways.md").read_text("utf-8").split("```sh\n")[1]
    name, *words = shlex.split(block.splitlines()[0])
    assert name == "redis-server"
    given = {
        flag.removeprefix("--"): value for flag, value in zip(words[::2], words[1::2], strict=True)
    }
    defaults = {"appendonly": "no", "maxmemory-policy": "noeviction", "appendfsync": "everysec"}
    assert persistence_fault(defaults, survives_power=False)
    assert not persistence_fault(defaults | given, survives_power=False)


@pytest.mark.parametrize(("words", "what"), FIGURES)
def test_figures_are_those_of_the_code(words: str, what: str) -> None:
    assert words in PAGE, what


def test_names_in_redis_are_those_of_the_code() -> None:
    bus = BusConnection("redis://localhost")
    names = [("gateways",), ("inbox", "<gateway>"), ("session", "<id>")]
    for parts in names:
        assert f"`{bus.shared_key(*parts)}`" in PAGE
    assert LOCATION_MS == 3_600_000, "an hour"
