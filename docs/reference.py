"""What the reference gets from the code: routes from /openapi.json, problems from their table.

A page has the marker `<!-- generated: NAME -->`, in whose place the build puts the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tidegate.app.http.application import create_app
from tidegate.app.refusals import CODES
from tidegate.app.settings.settings import Settings

MARKER = re.compile(r"<!-- generated: (\w+) -->")
EVERYWHERE = {"4XX", "406", "429", "500", "503"}  # each operation can be refused so
Operation = tuple[str, str, dict[str, Any]]


def filled(page: str) -> str:
    """Return a page with what its markers name."""
    return MARKER.sub(lambda found: "\n".join(PARTS[found[1]]()), page)


def operations() -> list[Operation]:
    """Return the address, the method and the description of each operation."""
    paths = create_app(Settings()).openapi()["paths"]
    return [(path, method, it) for path, methods in paths.items() for method, it in methods.items()]


def routes() -> Iterator[str]:
    """Yield a section for each group of operations, and a part for each operation."""
    every = operations()
    for tag in dict.fromkeys(operation["tags"][0] for _, _, operation in every):
        yield f"\n## {tag.capitalize()}\n"
        for path, method, operation in every:
            if operation["tags"][0] == tag:
                yield from _operation(path, method, operation)


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`\n"
    yield f"{operation['summary']}. {operation['description']}\n"
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        yield "Body: " + ", ".join(f"`{media}`" for media in body) + ".\n"
    parameters = operation.get("parameters", [])
    if parameters:
        yield "| parameter | in | meaning |\n|---|---|---|"
        for it in parameters:
            needed = "" if it.get("required") else ", optional"
            yield f"| `{it['name']}` | {it['in']}{needed} | {_cell(it.get('description', ''))} |"
        yield ""
    answers = {code: it for code, it in operation["responses"].items() if code not in EVERYWHERE}
    if answers:
        yield "| status | answer |\n|---|---|"
        yield from (f"| {code} | {_cell(it['description'])} |" for code, it in answers.items())
        yield ""


def _cell(text: str) -> str:
    """Return a text that does not end the cell of a table, and that Markdown leaves as it is."""
    return re.sub(r"([|*\[\]<>_])", r"\\\1", " ".join(text.split()))


def problems() -> Iterator[str]:
    """Yield the table of problems: each with the operations that declare it."""
    yield "| code | status | means | refused so |\n|---|---|---|---|"
    declared: dict[str, list[str]] = {}
    for path, method, operation in operations():
        for status, answer in operation["responses"].items():
            if status not in EVERYWHERE:
                for code in re.findall(r"[a-z]+(?:-[a-z]+)+|forbidden|csrf", answer["description"]):
                    declared.setdefault(code, []).append(f"`{method.upper()} {path}`")
    for code, (status, title) in CODES.items():
        places = dict.fromkeys(declared.get(code, []))
        shown = ", ".join(places) if 0 < len(places) <= PLACES_MAX else "many requests"
        yield f"| `{code}` | {status} | {title} | {shown} |"


PLACES_MAX = 4
PARTS: dict[str, Callable[[], Iterator[str]]] = {"routes": routes, "problems": problems}
