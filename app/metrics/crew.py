"""One scrape of all workers at an address: each one's figures, under the label `worker`.

A connection comes to any worker. So the one that is asked asks the others over the bus, and a
scrape is of all of them, whichever it came to. Workers keep their numbers when they are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qs, urlencode

from app.crew import Crew
from app.gateway import Gateway
from app.inner_call import Call, Reply
from app.problems import Problem

NUMBER = "tidegate-worker"
UP = "tidegate_worker_up"

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (.+)").fullmatch


async def of_all(gateway: Gateway, crew: Crew, own: bytes) -> bytes:
    """This worker's page with those of the others; who does not answer in time is told as down."""
    pages = {crew.number: own.decode()}
    if gateway.neighbours is not None:
        query = urlencode({"crew": crew.id}).encode()
        replies = await gateway.neighbours.replies(Call("GET", b"/metrics", query, []))
        pages |= dict(_page(reply) for reply in replies.values() if reply and reply.status == 200)
    return merged(pages, crew.count).encode()


def check_crew(crew: Crew | None, query: bytes) -> dict[str, str]:
    """What a worker says of itself to another of its crew; nobody else is answered.

    Raises:
        Problem: not-found.
    """
    if crew is None or parse_qs(query).get(b"crew") != [crew.id.encode()]:
        raise Problem("not-found", "This is a worker of somebody else.")
    return {NUMBER: str(crew.number)}


def merged(pages: Mapping[int, str], count: int) -> str:
    """Pages in one: each family once, its samples under the numbers of their workers."""
    families: dict[str, list[str]] = {}
    heads: dict[str, list[str]] = {}
    for number in sorted(pages):
        family = ""
        for line in pages[number].splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                heads.setdefault(family, [line])
            elif line.startswith("# TYPE "):
                if len(heads[family]) == 1:
                    heads[family].append(line)
            else:
                families.setdefault(family, []).append(_labelled(line, number))
    lines = [line for name, head in heads.items() for line in (*head, *families.get(name, ()))]
    lines += [
        f"# HELP {UP} 1 while the worker answers the one that was asked.",
        f"# TYPE {UP} gauge",
    ]
    lines += [f'{UP}{{worker="{n}"}} {int(n in pages)}' for n in range(1, count + 1)]
    return "\n".join(lines) + "\n"


def _page(reply: Reply) -> tuple[int, str]:
    return int(dict(reply.headers)[NUMBER.encode()]), reply.body.decode()


def _labelled(line: str, number: int) -> str:
    found = _SAMPLE(line)
    assert found is not None, "a sample"
    name, labels, value = found.groups()
    own = f'worker="{number}"'
    return f"{name}{{{own},{labels}}} {value}" if labels else f"{name}{{{own}}} {value}"
