"""Records come back from the bus as they were given."""

from __future__ import annotations

import pytest

from app.bus.packing import newest_of_each, pack_record, record_frame
from app.stores.store import Item, Message, Removal
from conflation.frame import Frame, Gone


@pytest.mark.parametrize("payload", [b"", b"7 spaces here", b"\x00\xff", b'{"k":"a"}'])
@pytest.mark.parametrize("exempt", [False, True])
def test_a_record_comes_back(payload: bytes, exempt: bool) -> None:
    value = b"42 " + pack_record(Message(payload, "[1]", exempt), 1_700)
    assert record_frame("[1]", value) == Frame(42, payload, "[1]", 1_700, exempt)


def test_of_each_record_the_newest_item_is_left() -> None:
    items: list[Item] = [
        Message(b"1", "[1]"),
        Message(b"2", "[2]"),
        Removal("[1]", Gone.DELETED),
        Message(b"3", "[2]"),
    ]
    assert newest_of_each(items) == {"[1]": (2, items[2]), "[2]": (3, items[3])}
