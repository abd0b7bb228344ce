"""Records come back from the bus as they were given."""

from __future__ import annotations

import pytest

from tidegate.app.cluster.topic_log import newest_items, pack_record, record_frame
from tidegate.app.stores.items import Item, Message, Removal
from tidegate.conflation.frame import Frame, RemovalReason


@pytest.mark.parametrize("payload", [b"", b"7 spaces here", b"\x00\xff", b'{"k":"a"}'])
@pytest.mark.parametrize("exempt", [False, True])
def test_a_record_comes_back(payload: bytes, exempt: bool) -> None:
    value = b"42 1700 " + pack_record(Message(payload, "[1]", exempt))
    assert record_frame("[1]", value) == Frame(42, payload, "[1]", 1_700, exempt)


def test_of_each_record_the_newest_item_is_left() -> None:
    items: list[Item] = [
        Message(b"1", "[1]"),
        Message(b"2", "[2]"),
        Removal("[1]", RemovalReason.DELETED),
        Message(b"3", "[2]"),
    ]
    assert newest_items(items) == {"[1]": (2, items[2]), "[2]": (3, items[3])}
