"""One scrape of all workers: families once, samples by worker, a missing worker as down.

Rule cluster-11 is tested here.
"""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.buses import BusServer, gateways
from tests.support.gateways import Running
from tests.support.rules import rule
from tidegate.app.cluster.workers import WorkerGroup
from tidegate.app.metrics.exposition import check_worker_group, merge_pages
from tidegate.app.refusals import Refused

pytestmark = rule("cluster-11")


GROUP = WorkerGroup("c1", 2, 3)
LABELS = ("worker", "topic")
PAGE = """# HELP tidegate_ready 1 while it is.
# TYPE tidegate_ready gauge
tidegate_ready {ready}
# HELP tidegate_topic_messages_in_total Messages.
# TYPE tidegate_topic_messages_in_total counter
tidegate_topic_messages_in_total{{topic="a,b}} c"}} {messages}
"""


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(sample.labels[label] for label in LABELS if label in sample.labels)): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_pages_become_one_that_prometheus_reads() -> None:
    pages = {3: PAGE.format(ready=0.0, messages=7.0), 1: PAGE.format(ready=1.0, messages=5e6)}
    text = merge_pages(pages, 3).decode()
    assert text.count("# TYPE") == text.count("# HELP") == 3
    assert samples(text) == {
        ("tidegate_ready", "1"): 1.0,
        ("tidegate_ready", "3"): 0.0,
        ("tidegate_topic_messages_in_total", "1", "a,b} c"): 5e6,
        ("tidegate_topic_messages_in_total", "3", "a,b} c"): 7.0,
        ("tidegate_worker_up", "1"): 1.0,
        ("tidegate_worker_up", "2"): 0.0,
        ("tidegate_worker_up", "3"): 1.0,
    }


@pytest.mark.parametrize(
    ("group", "query"),
    [(None, b"group=c1"), (GROUP, b""), (GROUP, b"group=c2"), (GROUP, b"group=")],
)
def test_only_its_own_group_is_answered(group: WorkerGroup | None, query: bytes) -> None:
    assert check_worker_group(GROUP, b"group=c1") == {"tidegate-worker": "2"}
    with pytest.raises(Refused, match="not-found"):
        check_worker_group(group, query)


async def workers_seen(gateway: Running) -> dict[str, float]:
    text = (await gateway.http.get("/metrics")).text
    return {name[1]: up for name, up in samples(text).items() if name[0] == "tidegate_worker_up"}


@pytest.mark.redis
async def test_any_worker_answers_for_all_of_its_group(redis_bus: BusServer) -> None:
    async with gateways(redis_bus, 3) as (one, two, other):
        for number, gateway in enumerate((one, two), 1):
            gateway.gateway.worker_group = WorkerGroup("c1", number, 3)
        for gateway in (one, two, other):
            assert gateway.gateway.peers is not None
            await gateway.gateway.peers.membership.heartbeat()
        await one.publish({"v": 1})
        for gateway in (one, two):
            found = samples((await gateway.http.get("/metrics")).text)
            assert await workers_seen(gateway) == {"1": 1.0, "2": 1.0, "3": 0.0}
            for worker in ("1", "2"):
                assert found["tidegate_ready", worker] == 1.0
                assert found["tidegate_connections_max", worker] > 0, "the server's figures too"
                assert found["process_open_fds", worker] > 0
        alone = samples((await other.http.get("/metrics")).text)
        assert alone["tidegate_ready",] == 1.0
        assert not any(name[0] == "tidegate_worker_up" for name in alone)
