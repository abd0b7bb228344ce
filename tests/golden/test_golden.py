"""Fixed seeds are answered as they were recorded: one block in the unit tier, a tenth in nightly.

`python -m tests.golden check` compares all of them.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dev import ROOT
from tests.golden.calls import Call, make_calls
from tests.golden.product import PLENTY
from tests.golden.record import ENGINE, TRANSCRIPTS, Recording
from tests.golden.transcript import Transcriber


def test_some_seeds_are_answered_as_recorded() -> None:
    assert not list(ENGINE.differing(ENGINE.blocks[:1])), "explain it: python -m tests.golden diff"


def some(blocks: Sequence[range]) -> list[range]:
    """A tenth of the blocks, others each night."""
    seed = int(os.environ.get("TIDEGATE_TEST_SEED", "0"))
    return sorted(Random(seed).sample(blocks, len(blocks) // 10), key=lambda block: block.start)


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", some(ENGINE.blocks), ids=str)
def test_the_engine_answers_as_recorded(seeds: range) -> None:
    assert not list(ENGINE.differing([seeds])), "explain it: python -m tests.golden diff"


@pytest.mark.nightly
def test_a_flush_that_is_taken_together_is_what_each_would_take() -> None:
    """Sessions are announced again sooner, and everything else is the same."""
    shared: list[int] = []
    for seed in range(0, ENGINE.seeds, 20):
        transcriber, calls = Transcriber(shares=True), list(of_one_subscription(make_calls(seed)))
        lines = [line for line in transcriber.transcribe(calls) if not line.startswith("! ready")]
        alone = [line for line in Transcriber().transcribe(calls) if not line.startswith("! ready")]
        assert lines == alone
        shared += transcriber.product.shared
    assert sum(shared) > 400
    assert sum(members > 1 for members in shared) > 80


def of_one_subscription(calls: Iterable[Call]) -> Iterator[Call]:
    """Calls in which each session has one subscription, and takes all that there is.

    After every other publish all intervals end, and all take: most sessions are in step then.
    """
    subscribed: dict[str, str] = {}
    asked: dict[str, Any] = {}
    published = 0
    for verb, arguments in calls:
        if verb == "subscribe":
            name = subscribed.setdefault(arguments["session"], arguments["name"])
            topic = subscribed.setdefault(f"topic of {arguments['session']}", arguments["topic"])
            if (name, topic) != (arguments["name"], arguments["topic"]):
                continue
            # All but one in three ask for the same, so that cohorts have several members.
            first = asked.setdefault(topic, arguments["asked"])
            if len(subscribed) % 6:
                arguments = {**arguments, "asked": first}
        if verb == "take":
            arguments = {**arguments, "bytes_max": PLENTY, "whole": True}
        yield verb, arguments
        published += verb == "publish"
        if verb == "publish" and published % 2:
            yield "serve", {"step_ns": 2_000_000_000}
            yield "take_all", {"sessions": [each for each in subscribed if " " not in each]}


def test_every_block_is_recorded() -> None:
    assert list(ENGINE.recorded()) == ENGINE.blocks
    assert all(re.fullmatch("[0-9a-f]{64}", found) for found in ENGINE.recorded().values())


@pytest.mark.nightly
def test_another_process_says_the_same() -> None:
    """Also where texts have other hashes, and sets another order."""
    for kind, seeds in (("engine", range(3)), ("simulation", range(1))):
        lines = (line for seed in seeds for line in TRANSCRIPTS[kind](seed))
        command = [sys.executable, "-m", "tests.golden", "show", kind, f"0-{len(seeds)}"]
        environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT)}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert run.stdout == "".join(f"{line}\n" for line in lines)


def words(seed: int) -> Iterator[str]:
    yield from (f"word {seed}", "another")


def test_a_difference_is_found(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "words.txt", 10, 4, words)
    recording.record()
    assert not list(recording.differing(recording.blocks))
    text = recording.path.read_text()
    hashes = recording.recorded()
    recording.path.write_text(text.replace(hashes[range(4, 8)], hashes[range(8)[:4]]))
    assert list(recording.differing(recording.blocks)) == [range(4, 8)]
