"""A journal at a gateway, page by page."""

from __future__ import annotations

import pytest

from tests.pipeline.journals import Journals, Removed
from tidegate.clients.answers import Journal
from tidegate.pipeline.format import journal
from tidegate.pipeline.format.bus_journal import BusJournal
from tidegate.pipeline.format.journal import GatewayJournal, open_journal
from tidegate.pipeline.format.options import ReadOptions


def test_a_page_ends_where_the_slice_does(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MESSAGES_PER_REQUEST_MAX", 3)
    journals.topic("t", [b"1", Removed(b'["a"]'), b"3", b"4"])
    with open_journal(ReadOptions(journals.address, "t")) as opened:
        assert opened.ends() == Journal("e1", "e1-1", "e1-4")
        rows = opened.page("e1", 0, 4).to_pylist()
        assert [(row["key"], row["value"], row["removed"]) for row in rows] == [
            ('["k"]', "1", None), ('["a"]', None, "deleted"), ('["k"]', "3", None),
        ]  # fmt: skip
        assert opened.page("e1", 2, 3)["offset"].to_pylist() == [3]
        assert opened.page("e1", 4, 9).num_rows == 0


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("http://h:8080", GatewayJournal),
        ("redis://h/0", BusJournal),
        ("rediss://h/0", BusJournal),
        ("unix:///tmp/s", BusJournal),
    ],
)
def test_the_address_says_where_it_is_read(address: str, kind: type) -> None:
    with open_journal(ReadOptions(address, "t")) as opened:
        assert type(opened) is kind
