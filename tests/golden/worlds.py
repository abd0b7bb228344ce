"""The simulation's transcripts: every byte on the wire, with who got it and when."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from tests.simulation.plan import make_plan
from tests.simulation.world import run


def wire_transcript(seed: int) -> Iterator[str]:
    """Every connection of every client, and each write with its virtual times."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        story = run(make_plan(seed))
    finally:
        logging.disable(disabled)
    for client in story.clients:
        for visit in client.visits:
            yield f"> client {client.plan.number} at {visit.began_ns} last {visit.last_id!r}"
            yield f"status {visit.status} ended {visit.ended_ns} orderly {visit.orderly}"
            for sent in visit.socket.sents:
                yield f"@ {sent.asked_ns} {sent.wrote_ns} {sent.text!r}"
