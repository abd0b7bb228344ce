"""Items come back from a blob as they went in, and as frames with their numbers."""

from __future__ import annotations

import pytest

from tidegate.app.stores.items import Item, Message, MessageBlock, Removal, pack, to_frames, unpack
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


def block(*, exempt: bool) -> MessageBlock:
    return MessageBlock([b"1", b"2", b"3"], ["[1]", "[2]", "[3]"], exempt=exempt)


@pytest.mark.parametrize("exempt", [False, True])
def test_a_block_is_its_messages(exempt: bool) -> None:
    messages = [Message(b"%d" % at, f"[{at}]", exempt) for at in (1, 2, 3)]
    assert list(block(exempt=exempt)) == messages
    assert list(block(exempt=exempt)[1:]) == messages[1:]
    assert pack(block(exempt=exempt)) == pack(messages)
    assert to_frames(block(exempt=exempt), 7, 1_000) == to_frames(messages, 7, 1_000)


def test_a_block_takes_blocks_and_messages() -> None:
    taken = block(exempt=True)
    taken.extend(block(exempt=True)[:1])
    taken.extend([Message(b"4", "[4]", exempt=True)])
    assert [message.payload for message in taken] == [b"1", b"2", b"3", b"1", b"4"]
    assert [message.record_key for message in taken] == ["[1]", "[2]", "[3]", "[1]", "[4]"]
