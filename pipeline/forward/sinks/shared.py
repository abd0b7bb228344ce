"""What sinks of several kinds have in common."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import EndpointUnavailable
from tidegate.pipeline.forward.target import Row

_DATE = r"-[0-9]{8}T[0-9]{6}\.[0-9]{6}Z"
KEY_PART = re.compile(r"\{key/([0-9]{1,2})\}")


def read_is_whole(table: TomlTable) -> bool:
    """Read whether a payload is the whole envelope of a row, and not only its value."""
    payload = table.text("payload", default="value")
    if payload not in {"value", "envelope"}:
        raise table.wrong("payload", "value or envelope", payload)
    return payload == "envelope"


def payload_of(row: Row, is_whole: bool) -> bytes:
    """Return the payload of a row that is no removal."""
    return row.text if is_whole else bytes(row.fields["value"])


def filled(pattern: str, row: Row, plain: str) -> str | None:
    """Return a pattern with parts of the row's key; None if the key has fewer than it names.

    A part that is a text is taken as it is, any other one is its JSON text.

    Args:
        pattern: such as `prices/{key/0}`.
        row: whose key has the parts.
        plain: the ASCII characters of a part that are not percent-encoded.
    """
    key: Any = msgspec.json.decode(row.fields["key"]) if "key" in row.fields else None
    parts = key if isinstance(key, list) else []
    wanted = [int(at) for at in KEY_PART.findall(pattern)]
    if wanted and max(wanted) >= len(parts):
        return None
    return KEY_PART.sub(lambda found: _encoded(parts[int(found[1])], plain), pattern)


def _encoded(part: object, plain: str) -> str:
    text = part if isinstance(part, str) else msgspec.json.encode(part).decode()
    return "".join(
        each if each in plain or each >= "\x7f" else f"%{ord(each):02X}" for each in text
    )


def dated(path: Path) -> Path:
    """Return a path with the present time in its name, at which there is no file yet."""
    at = datetime.fromtimestamp(time.time(), UTC)
    while True:
        name = f"{path.stem}-{at:%Y%m%dT%H%M%S.%fZ}{path.suffix}"
        found = path.with_name(name)
        if not found.exists():
            return found
        at += timedelta(microseconds=1)


def is_dated(name: str, path: Path) -> bool:
    """Return whether a name is one that `dated` makes of a path."""
    return re.fullmatch(re.escape(path.stem) + _DATE + re.escape(path.suffix), name) is not None


def unwritable(path: Path, error: OSError) -> EndpointUnavailable:
    """Return the error of a file that cannot be written, such as on a full disk."""
    return EndpointUnavailable(f"{path} cannot be written: {error.strerror or error}")
