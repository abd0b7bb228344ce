"""A backup is restored whole or not at all, and its positions are never taken for newer ones."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from tests.app.stores.test_store import PLAIN, append
from tidegate.app.stores.backups import REPLACED, back_up, restore
from tidegate.app.stores.folder import DATABASE
from tidegate.app.stores.items import Message
from tidegate.app.stores.schema import FORMAT
from tidegate.app.stores.sqlite import SqliteStore
from tidegate.app.stores.store import StoreUnusable, TopicRecord


async def opened(folder: Path) -> SqliteStore:
    store = SqliteStore(folder)
    await store.open()
    return store


async def backed_up(folder: Path, backup: Path) -> None:
    """A store with one message, of which a backup is made while it runs, and then another."""
    store = await opened(folder)
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await append(store, "a", [Message(b"1")])
    with closing(sqlite3.connect(folder / DATABASE)) as found:
        found.execute("VACUUM INTO ?", (str(backup),))
    await append(store, "a", [Message(b"2")])
    await store.aclose()


async def test_a_backup_comes_back_with_another_epoch(tmp_path: Path) -> None:
    there, elsewhere, backup = tmp_path / "there", tmp_path / "elsewhere", tmp_path / "backup.db"
    await backed_up(there, backup)
    assert restore(backup, elsewhere) == (1, None)
    store = await opened(elsewhere)
    (record,) = await store.records()
    kept = await store.load("a")
    assert record.name == "a"
    assert record.epoch != "e1"
    assert [frame.payload for frame in kept.journal] == [b"1"]
    await store.aclose()
    store = await opened(elsewhere)
    assert (await store.records())[0].epoch == record.epoch, "once is enough"
    await store.aclose()


async def test_a_running_store_is_copied_whole_and_comes_back(tmp_path: Path) -> None:
    there, backup = tmp_path / "there", tmp_path / "backup.db"
    store = await opened(there)
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await append(store, "a", [Message(b"1")])
    assert back_up(there, backup) == 1
    await append(store, "a", [Message(b"2")])
    assert (await store.load("a")).head == 2, "the store goes on"
    await store.aclose()
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600, "others must not read messages"
    assert restore(backup, tmp_path / "elsewhere") == (1, None)
    copied = await opened(tmp_path / "elsewhere")
    assert [frame.payload for frame in (await copied.load("a")).journal] == [b"1"]
    assert [record.name for record in await copied.records()] == ["a"]
    await copied.aclose()


async def test_a_copy_put_in_place_by_hand_begins_another_epoch(tmp_path: Path) -> None:
    there, elsewhere = tmp_path / "there", tmp_path / "elsewhere"
    await backed_up(there, tmp_path / "unused.db")
    elsewhere.mkdir()
    assert back_up(there, elsewhere / DATABASE) == 1
    store = await opened(elsewhere)
    (record,) = await store.records()
    assert record.epoch != "e1"
    await store.aclose()


async def test_a_copy_has_whole_requests_in_order_while_others_are_stored(tmp_path: Path) -> None:
    there, stopped = tmp_path / "there", asyncio.Event()
    store = await opened(there)
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))

    async def publish() -> None:
        number = 0
        while not stopped.is_set():
            pair = [Message(b"%d" % number), Message(b"%d" % (number + 1))]
            await append(store, "a", pair)
            number += 2

    publishing = asyncio.create_task(publish())
    for name in ("one.db", "two.db"):
        await asyncio.to_thread(back_up, there, tmp_path / name)
    stopped.set()
    await publishing
    await store.aclose()
    for name in ("one", "two"):
        restore(tmp_path / f"{name}.db", tmp_path / name)
        copied = await opened(tmp_path / name)
        found = [int(frame.payload or b"") for frame in (await copied.load("a")).journal]
        assert found == list(range(len(found)))
        assert len(found) % 2 == 0
        await copied.aclose()


async def test_a_backup_replaces_nothing_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, backups = tmp_path / "there", tmp_path / "backups"
    await backed_up(there, tmp_path / "unused.db")
    backups.mkdir()
    (backups / "a.db").write_text("mine")
    for folder, file, reason in (
        (there, backups / "a.db", "is there already"),
        (tmp_path / "nowhere", backups / "b.db", "There is no store in "),
        (there, tmp_path / "none" / "b.db", "No such file or directory"),
    ):
        with pytest.raises(StoreUnusable, match=reason):
            back_up(folder, file)

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("tidegate.app.stores.generation.mark_restored", full)
    with pytest.raises(StoreUnusable, match=r"copied to .*b\.db: database or disk is full\.$"):
        back_up(there, backups / "b.db")
    assert [(path.name, path.read_text()) for path in backups.iterdir()] == [("a.db", "mine")]


async def test_a_damaged_store_is_named_and_not_copied(tmp_path: Path) -> None:
    there = tmp_path / "there"
    await backed_up(there, tmp_path / "unused.db")
    content = bytearray((there / DATABASE).read_bytes())
    content[4096:8192] = b"\xff" * 4096
    (there / DATABASE).write_bytes(content)
    with pytest.raises(StoreUnusable, match=r"^The store (in \S+/there|cannot be copied)"):
        back_up(there, tmp_path / "backup.db")
    assert not (tmp_path / "backup.db").exists()


async def test_a_copy_made_with_backup_will_do_too(tmp_path: Path) -> None:
    await backed_up(tmp_path / "there", tmp_path / "unused.db")
    backup = tmp_path / "backup.db"
    with (
        closing(sqlite3.connect(tmp_path / "there" / DATABASE)) as source,
        closing(sqlite3.connect(backup)) as target,
    ):
        source.backup(target)
    assert restore(backup, tmp_path / "elsewhere") == (1, None)
    store = await opened(tmp_path / "elsewhere")
    assert (await store.load("a")).head == 2
    await store.aclose()


async def test_a_store_is_replaced_only_if_that_is_said_and_is_kept(tmp_path: Path) -> None:
    there, backup = tmp_path / "there", tmp_path / "backup.db"
    await backed_up(there, backup)
    with pytest.raises(StoreUnusable, match="already; --replace keeps it"):
        restore(backup, there)
    store = await opened(there)
    assert (await store.load("a")).head == 2, "as it was"
    await store.aclose()
    assert restore(backup, there, replaces=True) == (1, there / REPLACED)
    store = await opened(there)
    assert (await store.load("a")).head == 1
    await store.aclose()
    with closing(sqlite3.connect(there / REPLACED)) as before:
        assert before.execute("SELECT max(last) FROM journal").fetchone()[0] == 2


async def test_no_store_that_was_kept_is_lost_to_a_later_one(tmp_path: Path) -> None:
    """Who restores the wrong backup first can still go back to what there was."""
    there, backup = tmp_path / "there", tmp_path / "backup.db"
    await backed_up(there, backup)
    for name in (REPLACED, f"{REPLACED}.2", f"{REPLACED}.3"):
        assert restore(backup, there, replaces=True) == (1, there / name)
    assert restore(there / REPLACED, there, replaces=True).topics == 1
    store = await opened(there)
    assert (await store.load("a")).head == 2, "what there was at first"
    await store.aclose()


async def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    there, backup = tmp_path / "there", tmp_path / "backup.db"
    await backed_up(there, backup)
    store = await opened(there)
    with pytest.raises(StoreUnusable, match="in use"):
        restore(backup, there, replaces=True)
    await store.aclose()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (f"PRAGMA user_version = {FORMAT + 1}", "newer"),
        ("PRAGMA application_id = 1", "another program"),
    ],
)
async def test_what_is_no_backup_of_ours_is_refused(
    tmp_path: Path, change: str, reason: str
) -> None:
    backup = tmp_path / "backup.db"
    await backed_up(tmp_path / "there", backup)
    with closing(sqlite3.connect(backup)) as found:
        found.execute(change)
    with pytest.raises(StoreUnusable, match=reason):
        restore(backup, tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere" / DATABASE).exists()


async def test_a_damaged_backup_is_refused(tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    await backed_up(tmp_path / "there", backup)
    content = bytearray(backup.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    backup.write_bytes(content)
    with pytest.raises(StoreUnusable, match=r"damaged|cannot be read"):
        restore(backup, tmp_path / "elsewhere")
    with pytest.raises(StoreUnusable, match="cannot be read"):
        restore(tmp_path / "none.db", tmp_path / "elsewhere")
