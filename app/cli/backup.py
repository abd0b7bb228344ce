"""`tidegate backup` and `restore`: copy the store of a gateway, and put a copy in its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate.app.cli.installation import need
from tidegate.app.cli.terminal import (
    DONE,
    CommandError,
    ConfigurationInvalid,
    UsageInvalid,
    print_line,
)

if TYPE_CHECKING:
    from tidegate.app.settings.settings import Settings

data_option = click.option(
    "--data", "store_dir", metavar="DIR", help="Folder of the store (./tidegate-data)."
)


@click.command(
    epilog="\b\nExample:\n  tidegate backup /backup/tidegate.db --data /var/lib/tidegate"
)
@click.argument("file", type=click.Path(path_type=Path))
@data_option
def backup(file: Path, store_dir: str | None) -> int:
    """Copy the store of a gateway to FILE, also while the gateway runs.

    FILE must not exist. It has topics with their definitions, messages and records, as of one
    moment, and `tidegate restore FILE` puts it in place. A Redis is backed up by its own means.
    """
    need("backup", "server")
    from tidegate.app.stores.backups import back_up
    from tidegate.app.stores.store import StoreUnusable

    settings = _settings(store_dir)
    if settings.redis is not None:
        raise UsageInvalid(
            "the settings name a Redis, which has the topics: back that up by its own means"
        )
    if settings.keeps_nothing:
        raise UsageInvalid("--data :memory: keeps nothing, so there is nothing to copy")
    try:
        topics = back_up(Path(settings.store_dir), file)
    except StoreUnusable as error:
        raise CommandError(str(error)) from None
    print_line(f"{topics} topic{'s' * (topics != 1)} of {settings.store_dir} copied to {file}")
    return DONE


@click.command(
    epilog=(
        "\b\nExample:\n  tidegate restore /backup/tidegate.db --data /var/lib/tidegate --replace"
    )
)
@click.argument("backup", type=click.Path(path_type=Path))
@data_option
@click.option(
    "--replace",
    is_flag=True,
    help="Replace an existing store, kept as tidegate.db.before (then .2, .3, ...).",
)
def restore(backup: Path, store_dir: str | None, replace: bool) -> int:
    """Restore a backup of the store.

    BACKUP is a file of `tidegate backup`. A Redis is restored by its own means: its topics then
    begin another epoch, so that no bookmark refers to another message.
    """
    need("restore", "server")
    _restore(backup, store_dir, replace)
    return DONE


def _restore(backup: Path, store_dir: str | None, replaces: bool) -> None:
    from tidegate.app.stores.backups import restore as restore_store
    from tidegate.app.stores.folder import FolderUnusable
    from tidegate.app.stores.store import StoreUnusable

    settings = _settings(store_dir)
    if settings.keeps_nothing:
        raise UsageInvalid("--data :memory: keeps nothing, so nothing can be restored into it")
    if not backup.is_file():
        raise UsageInvalid(f"no such file: {backup}; a backup is a file of `tidegate backup`")
    folder = Path(settings.store_dir)
    try:
        restored = restore_store(backup, folder, replaces=replaces)
    except FolderUnusable as error:
        raise ConfigurationInvalid(str(error)) from None
    except StoreUnusable as error:
        raise CommandError(str(error)) from None
    if restored.before is not None:
        print_line(f"The previous store is kept as {restored.before}")
    count = restored.topics
    print_line(
        f"{count} topic{'s' * (count != 1)} restored into {folder}; "
        "each begins another epoch at the next start"
    )


def _settings(store_dir: str | None) -> Settings:
    """Return the settings that `serve` would use, so that all commands use the same folder."""
    from tidegate.app.cli.settings import load_settings

    return load_settings(overrides={"data": store_dir})
