"""The simulation's transcripts: every byte on the wire, with who got it and when."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from tests.simulation.plan import make_plan
from tests.simulation.simulation import run


def wire_transcript(seed: int) -> Iterator[str]:
    """Every connection of every client, and each write with its virtual times."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        record = run(make_plan(seed))
    finally:
        logging.disable(disabled)
    for client in record.clients:
        for one in client.connections:
            yield f"> client {client.plan.number} at {one.began_ns} last {one.last_id!r}"
            yield f"status {one.status} ended {one.ended_ns} orderly {one.orderly}"
            for sent in one.socket.sents:
                yield f"@ {sent.asked_ns} {sent.wrote_ns} {sent.text!r}"
