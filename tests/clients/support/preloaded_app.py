"""A WSGI application that has its live dict before gunicorn forks the workers (`--preload`)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable

from tidegate.clients.gateway import Gateway

gateway = Gateway(os.environ["TIDEGATE_TEST_GATEWAY"])
prices = gateway.live("px")
prices.ready()


def app(
    environ: dict[str, object], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    """Answer with the process and the records that it shows."""
    shown = {"process": os.getpid(), "records": list(prices.values()), "outage": prices.outage}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(shown).encode()]
