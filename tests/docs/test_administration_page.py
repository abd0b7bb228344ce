"""The page on administration: its commands can be given, its files can be used."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dev import ROOT
from tests.support.commands import parsed
from tests.support.place import MERGERS
from tests.support.servers import edge_settings
from tidegate.app.definitions.files import read_topic_files
from tidegate.app.topics.plan import Step, plan

PAGE = (ROOT / "docs" / "administration.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"```(toml|text)\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]


async def planned(folder: Path) -> list[Step]:
    async def has_messages(name: str) -> bool:
        raise AssertionError(f"{name} is new")

    return await plan(read_topic_files(folder, MERGERS), {}, has_messages, edge_settings(), MERGERS)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_taken(command: str) -> None:
    name, *arguments = shlex.split(command)
    assert name == "tidegate"
    assert parsed(*arguments).command.callback


def test_every_verb_of_topics_and_sessions_is_shown() -> None:
    shown = {tuple(command.split()[1:3]) for command in COMMANDS}
    topics = {("topics", verb) for verb in ("list", "show", "create", "update", "delete")}
    assert topics <= shown
    assert {("sessions", verb) for verb in ("list", "show", "close", "conflate")} <= shown


async def test_the_file_on_the_page_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(BLOCKS["toml"], "utf-8")
    seen = [str(step) for step in await planned(tmp_path)]
    assert seen == ["create prices.us", "create prices.us.slow"]
    assert seen[1] in BLOCKS["text"].splitlines()


async def test_the_examples_can_be_used() -> None:
    steps = await planned(ROOT / "examples" / "topics")
    assert [step.declared.name for step in steps] == [
        "market.ticks",
        "market.ticks.1s",
        "market.volume",
        "trade.fills",
        "trade.log",
    ]
    own_key = [str(path) for path in steps[1].after.key_spec.paths]
    assert own_key == ["/tickerId", "/exchange", "/type"]
