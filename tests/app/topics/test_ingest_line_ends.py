"""Lines that end with a return and a line feed: neither is part of the message."""

from __future__ import annotations

import pytest

from tests.support.place import LINES, keyed
from tidegate.app.refusals import Refused
from tidegate.app.topics.ingest import BodyForm


@pytest.mark.parametrize("form", [LINES, BodyForm(lined=True, enveloped=True)])
async def test_a_line_ends_before_its_return(form: BodyForm) -> None:
    place = await keyed()
    found = []
    for end in (b"\n", b"\r\n"):
        with pytest.raises(Refused) as refused:
            await place.ingest.check(place.catalog.get("px"), b'{"value":{"k":' + end, form)
        found.append((refused.value.line, refused.value.position))
    assert found == [(1, len(b'{"value":{"k":'))] * 2


async def test_a_return_is_no_part_of_the_largest_message() -> None:
    place = await keyed(message_bytes_max=1_024)
    at_limit = b'{"k":"' + b"x" * (1_024 - 8) + b'"}'
    body = at_limit + b"\r\n" + at_limit + b"\r\n"
    assert len(await place.ingest.check(place.catalog.get("px"), body, LINES)) == 2
