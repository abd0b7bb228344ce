"""docs/options.md has an example of every option, and each is decided as the page says."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

import pytest

from tests.docs.options_reference import PAGE as PATH
from tests.docs.options_reference import generated
from tests.support.commands import run, serving
from tests.support.gateways import running_gateway
from tidegate.clients.gateway import Gateway
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.grant import decide, granted
from tidegate.conflation.options.table import TABLE, Options
from tidegate.keys.spec import KeySpec

PAGE = PATH.read_text("utf-8")
TOPICS = {
    "ticks": Definition(History(1), KeySpec.parse("[/tickerId]")),
    "log": Definition(History(1)),
}
_SAID = re.compile(r"(topic|command|filter|order_by|defaults): (.*)").fullmatch


@dataclass
class Example:
    """A fenced block: what is asked, and the line that says what comes of it."""

    options: str = ""
    answer: str = ""
    said: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([*self.said.values(), self.options or "nothing"])


def examples(page: str) -> list[Example]:
    return [example_of(block) for block in re.findall(r"```options\n(.*?)```", page, re.DOTALL)]


def example_of(block: str) -> Example:
    *asked, answer = block.rstrip("\n").split("\n")
    example = Example(answer=answer)
    for line in asked:
        if found := _SAID(line):
            example.said[found[1]] = found[2]
        else:
            example.options = line
    return example


def answer_to(example: Example) -> str:
    """The page's last line, as the gateway would write it."""
    said = example.said
    topic = said.get("topic", "ticks")
    try:
        decided = decide(
            topic,
            TOPICS[topic],
            Options.parse(example.options),
            defaults=Options.parse(said.get("defaults", "")),
            command=said.get("command"),
            filter_text=said.get("filter", ""),
            order_text=said.get("order_by", ""),
        )
    except OptionsInvalid as error:
        at = "" if error.position is None else f" at {error.position}"
        return f"refused{at}: {error.detail}"
    return f"=> {granted(decided)}"


EXAMPLES = examples(PAGE)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_is_answered_as_the_page_says(example: Example) -> None:
    assert answer_to(example) == example.answer


async def test_a_gateway_says_so_in_hello() -> None:
    """An id that no gateway gave is the one example that no stream begins with."""
    granted_ones = [each for each in EXAMPLES if each.answer.startswith("=> ")]
    async with running_gateway() as running:
        await running.topic("log", key=())
        for example in granted_ones:
            said = dict(example.said)
            await running.topic("ticks", key=("/tickerId",), options=said.pop("defaults", ""))
            if "bookmark_not_found=fail" in example.options:
                continue
            topic = said.pop("topic", "ticks")
            async with running.subscribe(example.options, topic=topic, **said):
                hello = running.hellos[-1]["subscriptions"][0]
                assert f"=> {hello['options']}" == example.answer


@pytest.mark.nightly
def test_its_commands_run() -> None:
    lines = re.findall(r"^tidegate (.*)$", PAGE, re.MULTILINE)
    assert lines
    with serving() as address, Gateway(address) as gateway:
        gateway.put_topic("ticks", {"key": ["/tickerId"]})
        for line in lines:
            ended = run(*shlex.split(line), "--gateway", address)
            assert (ended.code, ended.err) == (0, "")


def test_every_option_has_an_example_that_is_granted() -> None:
    shown = {
        name
        for example in EXAMPLES
        if example.answer.startswith("=> ")
        for name in Options.parse(example.options).positions
    }
    assert shown == {name for name, option in TABLE.items() if not option.only_in_change}


def test_its_tables_are_those_of_the_product() -> None:
    """If not: `python -m tests.docs.options_reference`."""
    assert generated(PAGE) == PAGE


def test_every_option_has_its_heading() -> None:
    headings = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
    named = [name for heading in headings for name in heading.split(", ")]
    assert sorted(named) == sorted(TABLE)
