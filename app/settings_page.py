"""The settings' reference page, written from the settings themselves.

`python -m tidegate.app.settings_page > docs/settings.md` writes it anew.
"""

import sys
from collections.abc import Iterator
from typing import Any

from tidegate.app.settings import SETTINGS, bound, variable_of
from tidegate.keys.text.duration import Duration
from tidegate.keys.text.size import size_text

INTRODUCTION = """\
# Settings

A setting's value comes from, each going before the one above it:

1. the default below,
2. `tidegate.toml` in the working directory, or the file named with `--config`,
3. the environment variable,
4. the flag of the command, where it has one.

In the file a setting is written by its name at the top level, durations and sizes in quotes:

```toml
port = 8080
queue_bytes_max = "8MiB"
write_timeout = "10s"
```

Durations are an integer and a unit, `ns us ms s m h d w`; sizes an integer and a unit,
`B KB MB GB KiB MiB GiB`; both in upper or lower case. A setting that does not exist, a value of the
wrong kind or out of bounds, and a file that is not TOML end the command with one line on standard
error and exit status 78. An environment variable that begins with `TIDEGATE_` and is a misspelt
setting does the same; one that resembles none is named in a warning and not used.
"""

HEADING = """\
| name | environment | default | least | most | meaning |
|---|---|---|---|---|---|
"""


def settings_page() -> str:
    """The whole page as Markdown."""
    return INTRODUCTION + "\n" + HEADING + "".join(_rows())


def _rows() -> Iterator[str]:
    for name, field in SETTINGS.items():
        bounds = [bound(name, "ge"), bound(name, "le")]
        default = "" if field.default is None else f"`{_shown(name, field.default)}`"
        cells = [f"`{name}`", f"`{variable_of(name)}`", default]
        meaning = (field.description or "").replace("|", "\\|")
        yield (
            "| "
            + " | ".join([*cells, *(_shown(name, value) for value in bounds), meaning])
            + " |\n"
        )


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and "bytes" in name:
        return size_text(value)
    if isinstance(value, tuple):
        return "[]"
    return str(value) if isinstance(value, Duration | str) else f"{value}"


if __name__ == "__main__":
    sys.stdout.write(settings_page())
