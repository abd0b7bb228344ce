"""Entity tags in `If-Match` and `If-None-Match`, as clients and proxies write them."""

from __future__ import annotations

import pytest

from tidegate.app.http.entity_tags import entity_tags, names_entity_tag
from tidegate.app.refusals import Refused

TAG = '"0123abcd"'
CODED = [f'{TAG[:-1]}-{coding}"' for coding in ("gzip", "br", "zstd", "deflate")]
"""What Apache and Caddy make of a tag."""


@pytest.mark.parametrize(
    ("header", "tags"),
    [
        (None, None),
        ("*", ["*"]),
        (" * ", ["*"]),
        (f'"other", {TAG}', ['"other"', TAG]),
        (f'"a,b" ,, {TAG},', ['"a,b"', TAG]),
        (f'W/"other", W/{TAG}', ['"other"', TAG]),
        *[(coded, [TAG]) for coded in CODED],
    ],
)
def test_a_change_names_tags_or_all(header: str | None, tags: list[str] | None) -> None:
    assert entity_tags(header) == tags


@pytest.mark.parametrize(
    "header", ["", "nonsense", f"*,{TAG}", '*,"a"', '"a",*', "*,*", TAG.strip('"'), f"{TAG} x"]
)
def test_what_is_neither_a_list_nor_all_is_refused(header: str) -> None:
    with pytest.raises(Refused, match="precondition-failed"):
        entity_tags(header)


def test_a_reader_names_what_it_has() -> None:
    for named in (TAG, "*", f"W/{TAG}", f'"other" , {TAG}', *CODED):
        assert names_entity_tag(named, TAG)
    for named in ("", '"other"', f"*, {CODED[0][:-1]}"):
        assert not names_entity_tag(named, TAG)
