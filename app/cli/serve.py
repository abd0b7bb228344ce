"""`tidegate serve`: the gateway, until a signal."""

from __future__ import annotations

import argparse
import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.arguments import Parser, count, port
from app.cli.dry_run import dry_run
from app.cli.errors import CommandError, ConfigurationInvalid, UsageInvalid
from app.cli.terminal import complain, say, tell

if TYPE_CHECKING:
    from app.settings import Settings
    from app.workers import Line

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
    parser.add_argument("--archive", metavar="DIR", help="archive of topics, to be read from")
    parser.add_argument(
        "--dry-run", action="store_true", help="with --topics: say what would change, and end"
    )
    parser.add_argument(
        "--workers", metavar="N", type=count, help="so many gateways at the address; with --redis"
    )
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
    return _serve(settings) if settings.workers == 1 else _serve_by_workers(settings)


def _serve(settings: Settings, line: Line | None = None, crew_id: str = "") -> int:
    """One gateway; `line` is that of a worker to its parent, whose id is the crew's."""
    from app.crew import Crew
    from app.listener import CannotListen, open_listener
    from app.main import create_app
    from app.server import StartFailed, serve
    from app.settings import SettingsInvalid
    from app.stores.store import StoreUnusable
    from app.topic_files import TopicFilesInvalid

    try:
        app = create_app(settings)
        if line is not None:
            app.state.gateway.crew = Crew(crew_id, line.number, settings.workers)
        return serve(
            app,
            settings,
            on_shutdown=app.state.gateway.say_goodbye,
            on_started=partial(_announce, settings, line),
            prepare=app.state.gateway.open_store,
            listener=None if line is None else open_listener(settings, shared=True),
            until=None if line is None else line.parent,
        )
    except (
        CannotListen, SettingsInvalid, StartFailed, StoreUnusable, TopicFilesInvalid,
    ) as error:  # fmt: skip
        raise ConfigurationInvalid(str(error)) from None


def _serve_by_workers(settings: Settings) -> int:
    """Several gateways, each a process, at one address that this one holds for them."""
    from app.listener import CannotListen, base_url, hold_address
    from app.logs import configure_logging
    from app.workers import Workers

    configure_logging(settings.log_level, settings.log_format)
    try:
        holder = hold_address(settings)
    except CannotListen as error:
        raise ConfigurationInvalid(str(error)) from None
    with holder:
        settings = settings.model_copy(update={"port": holder.getsockname()[1]})
        return Workers(
            settings.workers,
            partial(_work, settings, secrets.token_hex(4)),
            grace_s=settings.shutdown_grace.seconds,
            on_ready=partial(_announce, settings, None, base_url(holder, settings.host)),
        ).run()


def _work(settings: Settings, crew_id: str, line: Line) -> int:
    try:
        return _serve(settings, line, crew_id)
    except CommandError as error:
        complain(str(error))
        return error.exit_code


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Settings from file, environment and flags.

    Raises:
        UsageInvalid: flags that contradict one another.
        ConfigurationInvalid: one line that names the setting at fault.
    """
    overrides = {
        "host": arguments.host,
        "port": arguments.port,
        "data": arguments.data,
        "redis": arguments.redis,
        "workers": arguments.workers,
        "topics": arguments.topics,
        "archive": arguments.archive,
        "insecure": arguments.insecure,
    }
    settings = load(arguments.config, overrides)
    if settings.workers > 1 and settings.redis is None:
        if arguments.workers is not None:
            raise UsageInvalid("--workers above 1 needs --redis")
        raise ConfigurationInvalid("workers: above 1 only with redis")
    return settings


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


def _announce(settings: Settings, line: Line | None, address: str) -> None:
    if line is not None:  # the parent says it for all
        line.tell_ready()
        return
    if settings.keeps_nothing:
        say(NOTHING_KEPT)
    tell(f"Tidegate listens on {address}")
