"""Settings as an operator meets them: read from file, environment and flags, shown as a page.

Order: defaults, then `tidegate.toml`, then `TIDEGATE_…` variables, then flags.
`python -m tidegate.app.cli.settings > docs/settings.md` writes the reference page.
"""

import difflib
import logging
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, TomlConfigSettingsSource

from tidegate.app.cli.terminal import ConfigurationInvalid
from tidegate.app.settings.kinds import EnvironmentText
from tidegate.app.settings.settings import PREFIX, SETTINGS, Settings
from tidegate.keys.text.size import size_text

CONFIG_FILE = "tidegate.toml"


def bound(name: str, side: Literal["ge", "le"]) -> Any:
    """Return the least or the greatest value of the setting `name`, or None."""
    rules = SETTINGS[name].metadata
    return next((getattr(rule, side) for rule in rules if hasattr(rule, side)), None)


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


# Variables that are no settings: those of commands (gateway, certificate, token) and those of
# tests, which start gateways with them set. TIDEGATE_TICKS would pass for a misspelled
# TIDEGATE_TOPICS.
OTHER_VARIABLES = frozenset(
    {
        "TIDEGATE_CLIENT_CERT",
        "TIDEGATE_GATEWAY",
        "TIDEGATE_HYPOTHESIS_PROFILE",
        "TIDEGATE_REQUIRE_ALL",
        "TIDEGATE_TICKS",
        "TIDEGATE_TOKEN",
        "TIDEGATE_TOKEN_FILE",
    }
)

logger = logging.getLogger("tidegate.settings")

INTRODUCTION = """\
# Settings

The value of a setting comes from these sources; a later one overrides those before it:

1. the default below,
2. `tidegate.toml` in the working directory, or the file named with `--config`,
3. the environment variable, `TIDEGATE_` and the name in capitals: `TIDEGATE_QUEUE_BYTES_MAX`,
4. the flag of the command, where it has one.

In the file, settings stand at the top level by name, durations and sizes in quotes:

```toml
port = 8080
queue_bytes_max = "8MiB"
write_timeout = "10s"
```

Durations are an integer and a unit, `ns us ms s m h d w`; sizes an integer and a unit,
`B KB MB GB KiB MiB GiB`; both in upper or lower case. An unknown setting, a value of the wrong kind
or out of bounds, and a file that is not TOML end the command with one line on standard error and
exit status 78. So does a setting that has no effect, such as `auth_issuer` without `auth_keys`, and
an environment variable that begins with `TIDEGATE_` and looks like a misspelled setting; one that
resembles none is ignored with a warning.

`tidegate serve --check`, with the flags of the start, names everything that is wrong, one line
each, and starts nothing ([administration.md](administration.md)).
"""

HEADING = """\
| name | default | bounds | meaning |
|---|---|---|---|
"""


SHARED = "where the workers share their topics and sessions"
WORKERS_ALONE = f"workers: above 1 needs redis, {SHARED}"

Source = tuple[Mapping[str, Any], Callable[[str], str]]
"""Values of settings by name, and a function: name of a setting -> how its source spells it."""


def load_settings(
    config: Path | None = None, *, overrides: Mapping[str, object] | None = None
) -> Settings:
    """Layer defaults, file, environment and flags into one `Settings`.

    Args:
        config: the TOML file; without it `tidegate.toml` in the working directory, if there.
        overrides: values of flags, by setting name; None for a flag that was not given.

    Raises:
        ConfigurationInvalid: one line that names the source and the setting.
    """
    found = read_settings(config, overrides=overrides)
    if found.faults:
        raise ConfigurationInvalid(found.faults[0])
    return found.settings


class ReadSettings(NamedTuple):
    """The settings of all sources, and everything that is wrong with them.

    Args:
        settings: with the default of each setting that is invalid.
        faults: one line each, for which `load_settings` would refuse them.
        unusable: names of settings that are invalid or do not fit together.
    """

    settings: Settings
    faults: Sequence[str]
    unusable: frozenset[str]


def read_settings(
    config: Path | None = None, *, overrides: Mapping[str, object] | None = None
) -> ReadSettings:
    """Read settings as `load_settings` does, but continue after faults and return them.

    Raises:
        ConfigurationInvalid: a source that cannot be read.
    """
    faults: list[str] = []
    invalid: set[str] = set()
    merged: dict[str, Any] = {}
    for source, spelled in _sources(config, overrides):
        reasons = dict(_faults_in(source))
        faults += [f"{spelled(name)}: {reason}" for name, reason in reasons.items()]
        invalid |= reasons.keys()
        merged |= {name: value for name, value in source.items() if name not in reasons}
    try:
        return ReadSettings(Settings(**merged), faults, frozenset(invalid))
    except ValidationError as error:
        [disagree] = [each["ctx"]["error"] for each in error.errors()]
    # Rules that involve an invalid setting are skipped: they would judge its default.
    found = [each for each in disagree.found if invalid.isdisjoint(each.names)]
    return ReadSettings(
        disagree.settings,
        [*faults, *(each.reason for each in found)],
        frozenset(invalid.union(*(each.names for each in found))),
    )


def _sources(config: Path | None, overrides: Mapping[str, object] | None) -> Sequence[Source]:
    """Return file, environment and flags, of which the last wins, and their names of a setting."""
    path = config or Path(CONFIG_FILE)
    in_file = _file_values(path) if config or path.exists() else {}
    flags = {name: value for name, value in (overrides or {}).items() if value is not None}
    return [
        (in_file, lambda name: f"{path.name}: {name!a}"),
        (_environment_values(), variable_of),
        (flags, lambda name: f"--{name.replace('_', '-')}"),
    ]


def _file_values(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb"):  # pydantic's source ignores a file that cannot be read
            return TomlConfigSettingsSource(Settings, path)()
    except OSError as error:
        raise ConfigurationInvalid(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationInvalid(f"{path}: not valid TOML: {reason}") from None


def _environment_values() -> dict[str, Any]:
    """Return the variables that are settings.

    A misspelled setting is an error: a limit that silently stays at its default is worse than a
    refusal to start. A variable that resembles no setting is only logged.
    """
    known = [variable_of(name) for name in SETTINGS]
    for variable in os.environ:
        if variable.startswith(PREFIX) and variable not in OTHER_VARIABLES.union(known):
            close = difflib.get_close_matches(variable, known, n=1, cutoff=0.85)
            if close:
                raise ConfigurationInvalid(f"{variable}: no such setting; did you mean {close[0]}?")
            logger.warning("%s is not a setting of the gateway and is ignored", variable)
    # Variables are in capitals, settings are not.
    found = EnvSettingsSource(Settings, case_sensitive=False)()
    return {name: EnvironmentText(text) for name, text in found.items()}


def _faults_in(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each invalid setting of one source, also one that a later source overrides, and why.

    Rules about several settings are checked when all sources are merged.
    """
    try:
        Settings(**values)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            if not each["loc"]:
                continue
            name = str(each["loc"][0])
            match each["type"]:
                case "greater_than_equal":
                    reason = f"expected at least {bound(name, 'ge')}"
                case "less_than_equal":
                    reason = f"expected at most {bound(name, 'le')}"
                case "extra_forbidden" if isinstance(values[name], dict):
                    reason = (
                        "no such setting; settings are at the top level of the file, in no table"
                    )
                case "extra_forbidden":
                    close = difflib.get_close_matches(name.lower(), SETTINGS, n=1)
                    reason = "no such setting" + (f"; did you mean {close[0]}?" if close else "")
                case _:
                    reason = _reason(each["msg"])
            yield name, reason


def _reason(message: str) -> str:
    return message.removeprefix("Value error, ")


def settings_page() -> str:
    """Return the whole page as Markdown."""
    return INTRODUCTION + "\n" + HEADING + "".join(_rows())


def _rows() -> Iterator[str]:
    for name, field in SETTINGS.items():
        default = "" if field.default is None else f"`{_shown(name, field.default)}`"
        meaning = (field.description or "").replace("|", "\\|")
        yield "| " + " | ".join([f"`{name}`", default, _bounds_text(name), meaning]) + " |\n"


def _bounds_text(name: str) -> str:
    least, most = (_shown(name, bound(name, side)) for side in ("ge", "le"))
    if least and most:
        return f"{least} to {most}"
    return f"at least {least}" if least else f"at most {most}" if most else ""


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and "bytes" in name:
        return size_text(value)
    if isinstance(value, tuple):
        return str(list(value))
    return str(value)


if __name__ == "__main__":
    sys.stdout.write(settings_page())
