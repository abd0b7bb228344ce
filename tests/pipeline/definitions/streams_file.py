"""A definition file of two streams, for tests that make one mistake in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.errors import DefinitionInvalid

GOOD = """\
gateway = "http://127.0.0.1:9000/"
[pipeline.newest]
key = ["/a", "$.b.c"]
interval = "500MS"
rows_per_batch = 10
source = {kind = "tidegate", topic = "ticks"}
sink = {topic = "ticks.500ms"}
[pipeline.from-files]
key = ["/a"]
interval = "2s"
pace = "batch"
files_per_batch = 3
checkpoint = "/var/lib/from-files"
dead_letters = "dead"
source = {kind = "files", path = "in/*.ndjson", topic = "raw"}
sink = {topic = "newest"}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "streams.toml"
    path.write_text(text, encoding="utf-8")
    return path


def check_mistake(folder: Path, old: str, new: str, said: str) -> None:
    """One line that names the file and the place."""
    assert old in GOOD
    with pytest.raises(DefinitionInvalid) as caught:
        read_definitions(written(folder, GOOD.replace(old, new, 1)))
    assert said in str(caught.value)
    assert "streams.toml" in str(caught.value)
    assert "\n" not in str(caught.value)
