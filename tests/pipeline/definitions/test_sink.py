from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.definitions.streams_file import check_mistake


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('{topic = "ticks.500ms"}', '{kind = "parquet"}', "sink.kind: parquet is not available"),
        ('{topic = "ticks.500ms"}', '{topic = "tidegate.x"}', "a name outside the gateway's own"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    check_mistake(tmp_path, old, new, said)
