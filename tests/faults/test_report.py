"""Evidence is tables that the command itself puts into a page, each in place of the one before."""

from __future__ import annotations

from pathlib import Path

from tests.faults.catalogue import FAULTS, Outcome
from tests.faults.checks.ledger import Ident
from tests.faults.checks.oracle import Finding, Kind
from tests.faults.crash_runs import Tally
from tests.faults.report import Section, catalogue_rows, crash_rows, write

PAGE = "# Evidence\n\nWords.\n\n## One\n\nold\n\n## Two\n\nstays\n"


def test_a_section_takes_the_place_of_its_title(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    for title in ("One", "Three", "One"):
        write(path, Section(title, "the command", [("what", "count"), ("lost", "0")]))
    text = path.read_text()
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == ["# Evidence", "## One", "## Two", "## Three"]
    assert "old" not in text
    assert "stays" in text
    assert text.count("| lost | 0     |") == 2
    assert "`the command`, commit " in text


def test_losses_stand_in_the_table_by_their_kind() -> None:
    tally = Tally(runs=1, ready_s=[1.0])
    tally.found("run", [Finding(Kind.LOST, str(Ident("w", 1, 0)))])
    tally.sums["requests"] = 1000
    rows = {row[0]: row[1] for row in crash_rows(tally)}
    assert (rows["lost"], rows["doubled"], rows["requests"]) == ("1", "0", "1,000")
    assert rows["everything that was found wrong"] == "1"


def test_a_fault_passes_fails_or_was_not_played() -> None:
    outcomes = [Outcome(), Outcome(["lost: all"]), Outcome(not_run="no Redis")]
    rows = catalogue_rows(list(zip(FAULTS, outcomes, strict=False)))
    assert [row[3] for row in rows[1:]] == ["passed", "**1 wrong**", "not run: no Redis"]


def test_names_of_the_catalogue_are_in_order() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)
    assert {int(name.strip("Fabcd")) for name in names} == {*range(1, 15), 25, 26, 28}
