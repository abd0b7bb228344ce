"""The page on durability names what is there: files, tables, figures."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

from dev import ROOT
from tidegate.app.stores.folder import DATABASE, LOCK
from tidegate.app.stores.schema import open_database
from tidegate.app.topics.checkpoints import CHECK_S, CHECKS_PER_ROUND, MESSAGES_MAX

PAGE = (ROOT / "docs" / "durability.md").read_text("utf-8")
NAMED = set(re.findall(r"`([^`]+)`", " ".join(re.findall(r"^\| (.*?) \|", PAGE, re.MULTILINE))))


def test_files_and_tables_are_those_of_the_store(tmp_path: Path) -> None:
    assert {DATABASE, LOCK} <= NAMED
    with closing(open_database(tmp_path / DATABASE, survives_power=False)) as connection:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        tables = {name for (name,) in found if not name.startswith("sqlite_")}
    assert tables <= NAMED


def test_checkpoints_are_as_often_as_it_says() -> None:
    assert f"{MESSAGES_MAX:,} new messages within a second" in PAGE
    assert f"every {CHECK_S * CHECKS_PER_ROUND:.0f} seconds" in PAGE
