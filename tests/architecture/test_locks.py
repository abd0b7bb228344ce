"""The locks pin and hash everything, agree with each other and the project, name no address."""

from __future__ import annotations

import re

import pytest

from dev import LEVELS, ROOT
from tests.packaging.dependencies import declared
from tidegate.pipeline.ingest.definition import KINDS

FOLDER = ROOT / "requirements"
LOCKS = [*LEVELS, "uv"]
ENTRY = re.compile(r"([A-Za-z0-9._-]+)==(\S+)( ; .+?)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n?")


def read(lock: str) -> str:
    return (FOLDER / f"{lock}.lock").read_text()


def entries(text: str) -> set[tuple[str, str, str]]:
    """Name, version and marker of each pin."""
    return {(found[1], found[2], found[3] or "") for found in ENTRY.finditer(text)}


def unhashed(text: str) -> list[str]:
    """The lines that no pinned and hashed entry accounts for."""
    return [line for line in ENTRY.sub("", text).splitlines() if line]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_address(lock: str) -> None:
    assert "://" not in read(lock)
    assert "--index" not in read(lock)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_is_pinned_and_hashed(lock: str) -> None:
    assert entries(read(lock))
    assert unhashed(read(lock)) == []


def test_each_lock_holds_all_of_the_one_before() -> None:
    base, run, everything = (entries(read(level)) for level in LEVELS)
    assert base < run < everything


@pytest.mark.parametrize("level", ["run", "all"])
def test_the_product_is_locked_whole(level: str) -> None:
    names = {requirement.name for requirement in declared() | declared("all")}
    assert names - {name for name, _, _ in entries(read(level))} == set()


def test_the_base_is_the_demo_and_ingest_without_spark() -> None:
    names = {name for name, _, _ in entries(read("base"))}
    assert names.isdisjoint({"pyspark", "py4j", "pyarrow", "pandas", "numpy"})
    assert {"hatchling", "editables"} <= names
    sources = set().union(*map(declared, KINDS.values())) & declared("all")
    product = declared() | declared("demo") | sources
    assert {requirement.name for requirement in product} <= names
