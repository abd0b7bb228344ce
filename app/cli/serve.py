"""`tidegate serve`: the gateway, until a signal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.arguments import Parser, count, port
from app.cli.errors import ConfigurationInvalid, UsageInvalid
from app.cli.terminal import say, tell

if TYPE_CHECKING:
    from app.settings import Settings

NOTHING_KEPT = "Nothing is kept yet: topics and messages live in memory until the gateway stops."


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb."""
    parser = verbs.add_parser("serve", help="run the gateway", allow_abbrev=False)
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=port, help="port to listen on, 0 for a free one (8080)")
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="folder of the store; :memory:, which keeps nothing, is all there is yet",
    )
    parser.add_argument("--redis", metavar="URL", help="a Redis as the bus (not available yet)")
    parser.add_argument("--config", metavar="FILE.toml", type=Path, help="settings from a file")
    parser.add_argument("--topics", metavar="DIR", help="definitions (not available yet)")
    parser.add_argument("--dry-run", action="store_true", help="with --topics: change nothing")
    parser.add_argument("--workers", metavar="N", type=count, help="above 1 only with --redis")
    parser.add_argument(
        "--insecure",
        action="store_true",
        default=None,
        help="listen without authentication where others can reach it",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve; 0 after SIGTERM, 130 after an interrupt.

    Raises:
        CommandError: the settings do not allow it, or the address cannot be had.
    """
    settings = settings_of(arguments)
    from app.listener import CannotListen
    from app.main import create_app
    from app.server import StartFailed, serve
    from app.settings import SettingsInvalid

    try:
        app = create_app(settings)
        return serve(
            app,
            settings,
            on_shutdown=app.state.gateway.say_goodbye,
            on_started=_announce,
        )
    except (CannotListen, SettingsInvalid, StartFailed) as error:
        raise ConfigurationInvalid(str(error)) from None


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Settings from file, environment and flags.

    Raises:
        UsageInvalid: flags that contradict one another.
        ConfigurationInvalid: one line that names the setting at fault.
    """
    if arguments.workers is not None and arguments.workers > 1 and arguments.redis is None:
        raise UsageInvalid("--workers above 1 needs --redis")
    if arguments.dry_run:
        raise UsageInvalid("--dry-run goes with --topics, which is not available yet")
    overrides = {
        "host": arguments.host,
        "port": arguments.port,
        "data": arguments.data,
        "redis": arguments.redis,
        "topics": arguments.topics,
        "insecure": arguments.insecure,
    }
    return load(arguments.config, overrides)


def load(config: Path | None, overrides: dict[str, object]) -> Settings:
    """Settings whose store is the one that there is: memory.

    Raises:
        ConfigurationInvalid: one line that names the setting at fault, a store folder included.
    """
    from app.settings import MEMORY_ONLY, SettingsInvalid, load_settings

    try:
        settings = load_settings(config, overrides=overrides)
    except SettingsInvalid as error:
        raise ConfigurationInvalid(str(error)) from None
    if settings.store_dir != MEMORY_ONLY and "store_dir" in settings.model_fields_set:
        raise ConfigurationInvalid(
            f"data: a store in a folder ({settings.store_dir}) is not available yet; "
            "leave it out, or say :memory:"
        )
    return settings.model_copy(update={"store_dir": MEMORY_ONLY})


def _announce(address: str) -> None:
    say(NOTHING_KEPT)
    tell(f"Tidegate listens on {address}")
