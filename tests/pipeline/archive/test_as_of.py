"""The state of the world as of a past time, by Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.pipeline.archive.archives import DAY_MS, NOON_MS, archive, files, removal, row
from tests.support.rules import rule
from tidegate.pipeline.archive.as_of import place_at, sow_as_of
from tidegate.pipeline.archive.folder import TopicFolder
from tidegate.pipeline.errors import ArchiveUnusable, UsageInvalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def folder(tmp_path: Path) -> TopicFolder:
    found = TopicFolder(tmp_path, "px")
    archive(found, [row(1), row(2, NOON_MS + 1_000, "b")], [removal(3, NOON_MS + 2_000)])
    archive(found, [row(4, NOON_MS + DAY_MS, "a"), row(5, NOON_MS + DAY_MS + 1, "b")])
    return found


@rule("archive-6")
@pytest.mark.nightly
@pytest.mark.spark
def test_spark_answers_as_a_gateway_would(spark: SparkSession, folder: TopicFolder) -> None:
    answers = {
        time_ms: sorted(
            (record.key, record.position)
            for record in sow_as_of(spark, folder.path.parent, "px", NOON_MS + time_ms).collect()
        )
        for time_ms in (-1, 1_500, 2_000, DAY_MS)
    }
    assert answers == {
        -1: [],
        1_500: [('["a"]', 1), ('["b"]', 2)],
        2_000: [('["b"]', 2)],
        DAY_MS: [('["a"]', 4), ('["b"]', 2)],
    }
    noon = datetime(2024, 10, 4, 12, 0, 0, 500_000, UTC)
    [first] = sow_as_of(spark, str(folder.path.parent), "px", "2024-10-04T12:00:00.5Z").collect()
    assert [first] == sow_as_of(spark, folder.path.parent, "px", noon).collect()
    assert (first.value, first.epoch, first.timestamp_ms) == ('{"k":"a","n":1}', "e1", NOON_MS)


def test_a_time_leads_to_a_place(folder: TopicFolder) -> None:
    part, path = folder.parts()[0], files(folder)[0]
    assert [place_at(path, part, NOON_MS + at) for at in (0, 999, 1_000)] == [1, 1, 2]
    path.write_bytes(b"PAR1 no PAR1")
    with pytest.raises(ArchiveUnusable, match="cannot be read"):
        place_at(path, part, NOON_MS)


@rule("archive-6")
def test_times_that_the_archive_lacks_are_refused(
    folder: TopicFolder, spark_less: SparkSession
) -> None:
    archive_folder = folder.path.parent
    for time in ("yesterday", cast(Any, 1.5), cast(Any, None)):
        with pytest.raises(UsageInvalid, match="expected 2026-11-21T21:37:10Z or milliseconds"):
            sow_as_of(spark_less, archive_folder, "px", time)
    files(folder)[0].unlink()
    for time_ms in (NOON_MS - 1, NOON_MS, NOON_MS + DAY_MS):
        with pytest.raises(ArchiveUnusable, match="does not reach back"):
            sow_as_of(spark_less, archive_folder, "px", time_ms)
    with pytest.raises(ArchiveUnusable, match="does not reach back"):
        sow_as_of(spark_less, archive_folder, "another", NOON_MS)


@pytest.fixture
def spark_less() -> SparkSession:
    """It is refused before a session is used."""
    return None  # type: ignore[return-value]  # nobody looks at it
