"""The generator of docs/metrics.md, from the families of the gateway and of the pipeline.

`python -m tests.docs.metrics_page > docs/metrics.md` writes the page.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric

from tidegate.app.figures import ConnectionFigures, Counters
from tidegate.app.gateway import Gateway
from tidegate.app.metrics.families import (
    gateway_families,
    measured_families,
    polling_families,
    reported_families,
    server_families,
    session_families,
)
from tidegate.app.metrics.topics import TopicTable, topic_families
from tidegate.app.settings.settings import MEMORY_ONLY, Settings
from tidegate.app.stores.store import StoreFigures
from tidegate.pipeline.operations.metrics import MetricsSink

INTRODUCTION = """\
# Metrics

`GET /metrics` answers in Prometheus's text form. A scrape costs no publish and changes nothing that
is sent (rule [account-4](semantics/accounting.md#account-4)); members of a lane that wait for the
same rows are counted at once, and other requests are served between two topics.
`deploy/grafana.json` is a dashboard for these metrics, `deploy/alerts.yml` has alerts;
[operations.md](operations.md) says what to do about each.

**They add up.** For each topic, at every moment:

    offered = filtered + matched
    matched = delivered + conflated + dropped (over all reasons) + waiting

Sums keep subscriptions that have ended, so that counters only rise while the topic lives. A restart
of the gateway begins them again, as `rate()` of Prometheus expects.
`conflated` and `waiting` are gauges: a row that was counted as replaced may be taken after all,
when its reader was in the middle of it. Snapshot and resume rows are no deliveries. Rows of windows
and groups are no messages, so none of them count as filtered.

**Several gateways on one Redis.** The column *scope* says what a sample counts:

- `gateway`: what this gateway, or this worker, has or does. Their sum is that of all.
- `shared`: what is in Redis, or comes from there. Each gateway and each worker counts all of it, so
  their sum is too large by their number. Take `max by (topic)` over them first:

```text
# subscribers
sum(tidegate_topic_subscriptions)
# messages published a second
sum(max by (topic) (rate(tidegate_topic_messages_in_total[1m])))
```

Samples of [`--workers`](many-gateways.md#workers) have the label `worker` as well. There,
`tidegate_worker_up` is 1 for a worker that answered the scrape, and 0 for one that did not.

**Labels are bounded.** No label names a session, a key, an address or a lane. The first
`metrics_topics_max` topics by name have a `topic` label of their own. All others are added up under
`topic="(others)"`, which no topic can be called. For another choice of topics, raise the setting or
read `GET /v1/topics/{topic}`.

A counter is shown as it is sampled, with `_total`; a histogram has `_bucket`, `_count` and `_sum`.
A gateway has the families up to [Process](#process-on-linux). A running pipeline has those of the
[last table](#pipeline), on a port of its own.
"""

PIPELINE_NOTE = """\
`tidegate pipeline run FILE --metrics-port 8090` answers scrapes on 127.0.0.1, or on
`--metrics-host`. So do `tidegate ingest` and `tidegate forward`. The label `query` is the name of
the stream, source or forward.
"""

HEADING = """\
| metric | type | labels | scope | meaning |
|---|---|---|---|---|"""
PIPELINE_HEADING = """\
| metric | type | labels | meaning |
|---|---|---|---|"""

SHARED = {
    "tidegate_topics",
    "tidegate_topic_messages_in",
    "tidegate_topic_removals_in",
    "tidegate_topic_bytes_in",
    "tidegate_topic_keys",
    "tidegate_topic_journal_messages",
    "tidegate_topic_journal_bytes",
}
"""The families of which each gateway on a Redis counts all; the others are of one gateway."""


async def metrics_page() -> str:
    """Return the content of docs/metrics.md."""
    sections = [INTRODUCTION]
    for title, families in _sections():
        rows = "\n".join(_row(family, scope=True) for family in families)
        sections.append(f"## {title}\n\n{HEADING}\n{rows}\n")
    rows = "\n".join(_row(family, scope=False) for family in MetricsSink().collect())
    sections.append(f"## Pipeline\n\n{PIPELINE_NOTE}\n{PIPELINE_HEADING}\n{rows}\n")
    return "\n".join(sections)


def _sections() -> Iterator[tuple[str, Iterable[Metric]]]:
    # Built and never opened: the families need its parts, and no store or task.
    gateway = Gateway.build(Settings(data=MEMORY_ONLY))
    settings, driver, mergers = gateway.settings, gateway.driver, gateway.mergers
    yield (
        "Gateway",
        gateway_families(settings, driver, mergers, topics=0, at_fault={}, is_ready=False),
    )
    yield "Topics", topic_families(TopicTable())
    yield "Sessions and streams", session_families(driver, {}, 0)
    yield "Polling", polling_families(gateway.polled)
    yield (
        "Store",
        [
            # With a checkpoint and a size, so that families which appear later are on the page.
            *measured_families(Counters(checkpointed_ms=0)),
            *reported_families(StoreFigures(0, size_bytes=0)),
        ],
    )
    yield "Server", server_families(ConnectionFigures(0))
    yield "Process (on Linux)", ProcessCollector(registry=CollectorRegistry()).collect()


def _row(family: Metric, *, scope: bool) -> str:
    ending = "_total" if family.type == "counter" else ""
    cells = [
        f"`{family.name}{ending}`",
        family.type,
        ", ".join(f"`{label}`" for label in _labels(family)),
        *(["shared" if family.name in SHARED else "gateway"] if scope else []),
        family.documentation,
    ]
    return f"| {' | '.join(cells)} |"


def _labels(family: Metric) -> list[str]:
    """Return a family's label names, also where it has no samples yet."""
    return [*getattr(family, "_labelnames", ()), *(["le"] if family.type == "histogram" else [])]


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(metrics_page()))
