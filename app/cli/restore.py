"""`tidegate restore`: puts a backup of the embedded store in its place, or notes that of Redis."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.arguments import Parser
from app.cli.errors import DONE, CommandError, ConfigurationInvalid, UsageInvalid
from app.cli.terminal import tell

if TYPE_CHECKING:
    from app.settings import Settings


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb."""
    parser = verbs.add_parser("restore", help="restore a backup", allow_abbrev=False)
    parser.add_argument(
        "backup", metavar="BACKUP", type=Path, nargs="?", help="a copy of tidegate.db"
    )
    parser.add_argument("--data", metavar="DIR", help="folder of the store (./tidegate-data)")
    parser.add_argument(
        "--replace",
        action="store_true",
        help="a store that is there is kept as tidegate.db.before (.2, .3 and on)",
    )
    parser.add_argument(
        "--redis", metavar="URL", help="in place of BACKUP: this Redis was put back by hand"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check it, copy it, and say what comes next.

    Raises:
        UsageInvalid: there is no such backup, or no folder to restore into.
        ConfigurationInvalid: a setting or a folder that cannot be used.
        CommandError: the backup cannot be used, there is a store already, Redis does not answer.
    """
    if (arguments.backup is None) == (arguments.redis is None):
        raise UsageInvalid("restore takes BACKUP, or --redis URL of a Redis that was put back")
    if arguments.redis is not None:
        _note_put_back(arguments.redis)
    else:
        _restore(arguments)
    return DONE


def _note_put_back(url: str) -> None:
    import asyncio

    from app.bus.put_back import note_put_back
    from app.stores.store import StoreUnusable

    settings = _settings(redis=url)
    try:
        topics = asyncio.run(note_put_back(url, settings.redis_prefix))
    except ValueError as error:
        raise ConfigurationInvalid(f"redis: {error}") from None
    except StoreUnusable as error:
        raise CommandError(str(error)) from None
    tell(f"{topics} topics begin another epoch, now where a gateway runs, else at its start")


def _settings(**overrides: str | None) -> Settings:
    from app.settings import SettingsInvalid, load_settings

    try:
        return load_settings(overrides=overrides)
    except SettingsInvalid as error:
        raise ConfigurationInvalid(str(error)) from None


def _restore(arguments: argparse.Namespace) -> None:
    from app.stores.folder import FolderUnusable
    from app.stores.restore import restore
    from app.stores.store import StoreUnusable

    settings = _settings(data=arguments.data)
    if settings.keeps_nothing:
        raise UsageInvalid("--data :memory: keeps nothing, so there is nothing to restore")
    if not arguments.backup.is_file():
        raise UsageInvalid(
            f"There is no file {arguments.backup}; a backup is a copy of tidegate.db."
        )
    folder = Path(settings.store_dir)
    try:
        restored = restore(arguments.backup, folder, replaces=arguments.replace)
    except FolderUnusable as error:
        raise ConfigurationInvalid(str(error)) from None
    except StoreUnusable as error:
        raise CommandError(str(error)) from None
    if restored.before is not None:
        tell(f"The store that was there is {restored.before} now")
    tell(
        f"{restored.topics} topics restored into {folder}; at the next start each has another epoch"
    )
