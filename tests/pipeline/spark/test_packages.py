from __future__ import annotations

import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.outside import require_java
from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.spark.packages import fetch_jars

Ran = subprocess.CompletedProcess[str]
MODULES = ["org.example:one:1.0", "org.example:two:2.0-rc"]


def ivy_that(does: Callable[[dict[str, Path]], Ran]) -> Any:
    """In the place of subprocess.run: an Ivy that gets files by the names of its options."""

    def run(command: list[str], **_: object) -> Ran:
        return does({name: Path(text) for name, text in pairwise(command) if name[0] == "-"})

    return run


def test_jars_of_modules_are_those_that_ivy_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def does(options: dict[str, Path]) -> Ran:
        asked.append(options["-ivy"].read_text())
        options["-cachepath"].write_text("/cache/one.jar:/cache/two.jar\n")
        return Ran([], 0, "", "")

    monkeypatch.setattr(subprocess, "run", ivy_that(does))
    found = fetch_jars(MODULES, without=["org.other"], is_transitive=False)
    assert found == [Path("/cache/one.jar"), Path("/cache/two.jar")]
    assert '<dependency org="org.example" name="two" rev="2.0-rc"' in asked[0]
    assert asked[0].count('transitive="false"><exclude org="org.other"/></dependency>') == 2


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (":: org.example#one;1.0: not found", "org.example:one:1.0 not found"),
        ("UNRESOLVED\n\nno route to host\n", "no route to host"),
        ("", "no reason given"),
    ],
)
def test_what_cannot_be_had_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, said: str, reason: str
) -> None:
    monkeypatch.setattr(subprocess, "run", ivy_that(lambda _: Ran([], 1, said, "")))
    with pytest.raises(SparkUnavailable) as caught:
        fetch_jars(MODULES)
    assert str(caught.value) == f"org.example:one:1.0 cannot be had ({reason})"


def test_an_ivy_that_hangs_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(_: dict[str, Path]) -> Ran:
        raise subprocess.TimeoutExpired("java", 1)

    monkeypatch.setattr(subprocess, "run", ivy_that(hangs))
    with pytest.raises(SparkUnavailable, match=r"cannot be had \(TimeoutExpired\)"):
        fetch_jars(MODULES)


@pytest.mark.slow
def test_sparks_own_ivy_says_what_is_not_there() -> None:
    """Whether a repository answers or none can be reached."""
    require_java()
    with pytest.raises(SparkUnavailable, match=r"org\.example:no-such-package:1\.0 cannot be had"):
        fetch_jars(["org.example:no-such-package:1.0"])
