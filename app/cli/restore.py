"""`tidegate restore BACKUP`: puts a backup of the embedded store in its place."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.cli.arguments import Parser
from app.cli.errors import CommandError, ConfigurationInvalid, UsageInvalid
from app.cli.terminal import tell


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb."""
    parser = verbs.add_parser("restore", help="restore a backup", allow_abbrev=False)
    parser.add_argument("backup", metavar="BACKUP", type=Path, help="a copy of tidegate.db")
    parser.add_argument("--data", metavar="DIR", help="folder of the store (./tidegate-data)")
    parser.add_argument(
        "--replace", action="store_true", help="a store that is there is kept as tidegate.db.before"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check it, copy it, and say what comes next.

    Raises:
        UsageInvalid: there is no such backup, or no folder to restore into.
        ConfigurationInvalid: a setting or a folder that cannot be used.
        CommandError: the backup cannot be used, or there is a store already.
    """
    from app.settings import SettingsInvalid, load_settings
    from app.stores.folder import FolderUnusable
    from app.stores.restore import restore
    from app.stores.store import StoreUnusable

    try:
        settings = load_settings(overrides={"data": arguments.data})
    except SettingsInvalid as error:
        raise ConfigurationInvalid(str(error)) from None
    if settings.keeps_nothing:
        raise UsageInvalid("--data :memory: keeps nothing, so there is nothing to restore")
    if not arguments.backup.is_file():
        raise UsageInvalid(
            f"There is no file {arguments.backup}; a backup is a copy of tidegate.db."
        )
    folder = Path(settings.store_dir)
    try:
        topics = restore(arguments.backup, folder, replaces=arguments.replace)
    except FolderUnusable as error:
        raise ConfigurationInvalid(str(error)) from None
    except StoreUnusable as error:
        raise CommandError(str(error)) from None
    tell(f"{topics} topics restored into {folder}; at the next start each has another epoch")
    return 0
