"""`tidegate serve`: the gateway, until a signal."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.arguments import Parser, count, port
from app.cli.dry_run import dry_run
from app.cli.errors import ConfigurationInvalid, UsageInvalid
from app.cli.terminal import say, tell

if TYPE_CHECKING:
    from app.settings import Settings

NOTHING_KEPT = "Nothing is kept: topics and messages live in memory until the gateway stops."


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb."""
    parser = verbs.add_parser("serve", help="run the gateway", allow_abbrev=False)
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=port, help="port to listen on, 0 for a free one (8080)")
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="folder of the store (./tidegate-data); :memory: keeps nothing",
    )
    parser.add_argument(
        "--redis", metavar="URL", help="a Redis or Valkey that gateways share, in place of --data"
    )
    parser.add_argument("--config", metavar="FILE.toml", type=Path, help="settings from a file")
    parser.add_argument("--topics", metavar="DIR", help="folder of definitions of topics")
    parser.add_argument(
        "--dry-run", action="store_true", help="with --topics: say what would change, and end"
    )
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
    if arguments.dry_run:
        return dry_run(settings)
    from app.listener import CannotListen
    from app.main import create_app
    from app.server import StartFailed, serve
    from app.settings import SettingsInvalid
    from app.stores.store import StoreUnusable
    from app.topic_files import TopicFilesInvalid

    try:
        app = create_app(settings)
        return serve(
            app,
            settings,
            on_shutdown=app.state.gateway.say_goodbye,
            on_started=partial(_announce, settings),
            prepare=app.state.gateway.open_store,
        )
    except (
        CannotListen, SettingsInvalid, StartFailed, StoreUnusable, TopicFilesInvalid,
    ) as error:  # fmt: skip
        raise ConfigurationInvalid(str(error)) from None


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Settings from file, environment and flags.

    Raises:
        UsageInvalid: flags that contradict one another.
        ConfigurationInvalid: one line that names the setting at fault.
    """
    if arguments.workers is not None and arguments.workers > 1 and arguments.redis is None:
        raise UsageInvalid("--workers above 1 needs --redis")
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
    """Settings from file, environment and flags.

    Raises:
        ConfigurationInvalid: one line that names the setting at fault.
    """
    from app.settings import SettingsInvalid, load_settings

    try:
        return load_settings(config, overrides=overrides)
    except SettingsInvalid as error:
        raise ConfigurationInvalid(str(error)) from None


def _announce(settings: Settings, address: str) -> None:
    if settings.keeps_nothing:
        say(NOTHING_KEPT)
    tell(f"Tidegate listens on {address}")
