"""How many keys a topic may have, also after the limit was lowered, and what needs no room."""

from __future__ import annotations

import pytest

from tests.support.place import Place, keyed
from tests.support.rules import rule
from tests.support.servers import edge_settings
from tidegate.app.refusals import Refused
from tidegate.app.stores.items import Removal
from tidegate.app.stores.store import Appended
from tidegate.app.topics.ingest import Ingest
from tidegate.conflation.frame import RemovalReason


@rule("topic-17")
async def test_known_keys_go_on_where_a_topic_has_more_than_it_may_have_by_now() -> None:
    place = Place()
    await place.put("px", key=["/k"])
    await place.say("px", {"k": 1}, {"k": 2}, {"k": 3})
    place.ingest = Ingest(place.writer, place.driver, edge_settings(topic_keys_max=2))
    assert await place.say("px", {"k": 1}, {"k": 3}) == Appended(4, 5)
    with pytest.raises(Refused, match="limit-reached"):
        await place.say("px", {"k": 1}, {"k": 4})


async def test_a_topic_has_only_so_many_keys() -> None:
    place = await keyed(topic_keys_max=2)
    await place.say("px", {"k": 1}, {"k": 1}, {"k": 2}, {"k": 1})
    with pytest.raises(Refused) as refused:
        await place.say("px", {"k": 2}, {"k": 3})
    assert refused.value.code == "limit-reached"
    assert refused.value.retry_after_s
    assert await place.say("px", {"k": 2}) == Appended(5, 5)


async def test_removals_need_no_room_for_keys() -> None:
    place = await keyed(topic_keys_max=1)
    await place.say("px", {"k": 1})
    removals = [Removal(f"[{at}]", RemovalReason.DELETED) for at in range(5)]
    await place.ingest.publish(place.catalog.get("px"), removals, None)
    with pytest.raises(Refused, match="at most 1 keys"):
        await place.say("px", {"k": 7}, {"k": 8})
