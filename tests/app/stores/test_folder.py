"""The folder of a store: created, locked by one gateway at a time, and refused in one sentence."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused
from tidegate.app.stores.folder import StoreFolder
from tidegate.app.stores.sqlite import SqliteStore
from tidegate.app.stores.store import StoreUnusable, TopicRecord


def test_it_is_made_where_it_is_not_there_and_only_for_its_owner(tmp_path: Path) -> None:
    folder = StoreFolder.lock(tmp_path / "a" / "b")
    assert folder.database == tmp_path / "a" / "b" / "tidegate.db"
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    folder.release()


def test_only_one_gateway_has_it_at_a_time(tmp_path: Path) -> None:
    folder = StoreFolder.lock(tmp_path)
    with pytest.raises(StoreUnusable, match="in use by another gateway"):
        StoreFolder.lock(tmp_path)
    folder.release()
    StoreFolder.lock(tmp_path).release()


def test_a_folder_that_cannot_be_made_or_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "tidegate.lock").mkdir()
    for path in (tmp_path / "file", tmp_path / "file" / "in", tmp_path):
        with pytest.raises(StoreUnusable, match=r"folder .* cannot be written: .*\.$"):
            StoreFolder.lock(path)


@pytest.mark.parametrize("how", ["removed", "replaced"])
@pytest.mark.parametrize("end", ["db", "db-wal", "db-shm", "lock"])
async def test_a_file_that_goes_while_it_is_open_is_missed(
    tmp_path: Path, end: str, how: str
) -> None:
    """What was written to it since would be gone at the next start, without a word."""
    store, folder = SqliteStore(tmp_path / "store"), tmp_path / "store"
    await store.open()
    try:
        await store.put_topic(TopicRecord("px", TopicDefinition(), "e1"))
        assert await store.fault() is None
        file = folder / f"tidegate.{end}"
        file.rename(tmp_path / "aside")
        if how == "replaced":
            shutil.copy(tmp_path / "aside", file)
        assert f"tidegate.{end} was removed or replaced" in str(await store.fault())
        with pytest.raises(Refused, match="removed or replaced") as refused:
            await store.put_topic(TopicRecord("py", TopicDefinition(), "e2"))
        assert refused.value.code == "bus-unavailable"
        (tmp_path / "aside").rename(file)
        assert await store.fault() is None
        await store.put_topic(TopicRecord("py", TopicDefinition(), "e2"))
    finally:
        await store.aclose()
