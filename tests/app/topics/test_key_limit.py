"""How many keys a topic may have, after the limit was lowered."""

from __future__ import annotations

import pytest

from tests.support.place import Place
from tests.support.rules import rule
from tests.support.servers import edge_settings
from tidegate.app.http.problems import Problem
from tidegate.app.stores.store import Appended
from tidegate.app.topics.ingest import Ingest


@rule("topic-17")
async def test_known_keys_go_on_where_a_topic_has_more_than_it_may_have_by_now() -> None:
    place = Place()
    await place.put("px", key=["/k"])
    await place.say("px", {"k": 1}, {"k": 2}, {"k": 3})
    place.ingest = Ingest(place.writer, place.driver, edge_settings(topic_keys_max=2))
    assert await place.say("px", {"k": 1}, {"k": 3}) == Appended(4, 5)
    with pytest.raises(Problem, match="limit-reached"):
        await place.say("px", {"k": 1}, {"k": 4})
