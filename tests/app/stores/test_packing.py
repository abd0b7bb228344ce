"""Items come back from a blob as they went in, and as frames with their numbers."""

from __future__ import annotations

from tidegate.app.stores.items import Item, Message, Removal, pack, to_frames, unpack
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone

ITEMS: list[Item] = [
    Message(b'{"k":"\xc3\xa4"}', '["\N{LATIN SMALL LETTER A WITH DIAERESIS}"]'),
    Message(b"\x00\xff", "", exempt=True),
    Removal("[1]", RemovalReason.EXPIRED, b"1"),
    Removal("", RemovalReason.DELETED),
]


def test_items_come_back_as_they_went_in() -> None:
    assert unpack(pack(ITEMS)) == ITEMS
    assert unpack(pack(())) == []


def test_frames_are_numbered_and_of_one_time() -> None:
    assert to_frames(ITEMS[1:3], 7, 1_000) == [
        Frame(7, b"\x00\xff", "", 1_000, exempt=True),
        Tombstone(8, b"1", "[1]", 1_000, reason=RemovalReason.EXPIRED),
    ]
