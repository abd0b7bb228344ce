"""The score of a sample, and the survivors that no test can kill."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.mutation.running import Outcome

EQUIVALENT = Path(__file__).with_name("equivalent.txt")
SCORE = "tests/mutation/score.md"
LEAST = 0.85
"""The least share of mutants that tests have to kill."""


def read_struck() -> dict[tuple[str, str, str], str]:
    """Reasons by module, operator and line of text: equivalent mutants, which change nothing.

    A line of the file has four fields: module | operator | text of the line | reason.
    """
    found = {}
    for line in EQUIVALENT.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            path, operator, text, reason = line.split(" | ", 3)
            found[path.strip(), operator.strip(), text.strip()] = reason
    return found


def key_of(root: Path, outcome: Outcome) -> tuple[str, str, str]:
    """How `equivalent.txt` names a mutant."""
    mutant = outcome.mutant
    line = (root / mutant.path).read_text().splitlines()[mutant.start[0] - 1]
    return mutant.path, mutant.operator, line.strip()


def share_killed(
    root: Path, outcomes: list[Outcome], struck: dict[tuple[str, str, str], str]
) -> float:
    """Return the share of mutants that are not equivalent for which a test failed."""
    survived = [outcome for outcome in outcomes if outcome.state == "survived"]
    equivalent = sum(key_of(root, outcome) in struck for outcome in survived)
    counted = len(outcomes) - equivalent
    return (len(outcomes) - len(survived)) / counted if counted else 1.0


def summary(
    root: Path,
    checkout: Path,
    arguments: str,
    outcomes: list[Outcome],
    struck: dict[tuple[str, str, str], str],
) -> str:
    """Write the page of a measurement."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=checkout, capture_output=True, text=True
    ).stdout.strip()
    survived = [outcome for outcome in outcomes if outcome.state == "survived"]
    equivalent = [outcome for outcome in survived if key_of(root, outcome) in struck]
    alive = [outcome for outcome in survived if outcome not in equivalent]
    counted = len(outcomes) - len(equivalent)
    share = share_killed(root, outcomes, struck)
    lines = [
        "# Mutants of keys/ and conflation/",
        "",
        f"`python -m tests.mutation {arguments} --write`",
        f"wrote this at commit {commit}.",
        "",
        f"Tests killed {counted - len(alive)} of {counted} mutants, {share:.1%}.",
        f"{len(equivalent)} others change nothing, for the reasons in equivalent.txt.",
        "",
        f"## Survivors: {len(alive)}",
        "",
        "| place | operator | line |",
        "| --- | --- | --- |",
    ]
    for outcome in sorted(alive, key=lambda each: (each.mutant.path, each.mutant.start)):
        mutant = outcome.mutant
        text = key_of(root, outcome)[2].replace("|", "\\|")
        note = f" ({outcome.by})" if outcome.by else ""
        place = f"{mutant.path}:{mutant.start[0]}:{mutant.start[1]}"
        lines.append(f"| {place}{note} | {mutant.operator} | `{text}` |")
    return "\n".join(lines) + "\n"


def write(checkout: Path, text: str) -> None:
    """Write the page into the checkout."""
    (checkout / SCORE).write_text(text)
