"""`tidegate restore`: puts a backup of the embedded store in its place, or notes that of Redis."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.app.cli.errors import DONE, CommandError, ConfigurationInvalid, UsageInvalid
from tidegate.app.cli.extras import need
from tidegate.app.cli.serve import load
from tidegate.app.cli.terminal import tell


@click.command()
@click.argument("backup", required=False, type=click.Path(path_type=Path))
@click.option("--data", "store_dir", metavar="DIR", help="Folder of the store (./tidegate-data).")
@click.option(
    "--replace",
    is_flag=True,
    help="A store that is there is kept as tidegate.db.before (.2, .3 and on).",
)
@click.option("--redis", metavar="URL", help="In place of BACKUP: this Redis was put back by hand.")
def restore(backup: Path | None, store_dir: str | None, replace: bool, redis: str | None) -> int:
    """Restore a backup: BACKUP is a copy of tidegate.db."""
    need("restore", "server")
    if redis is not None and backup is None:
        _note_put_back(redis)
    elif backup is not None and redis is None:
        _restore(backup, store_dir, replace)
    else:
        raise UsageInvalid("restore takes BACKUP, or --redis URL of a Redis that was put back")
    return DONE


def _note_put_back(url: str) -> None:
    import asyncio

    from tidegate.app.cluster.definitions import mark_restored
    from tidegate.app.stores.store import StoreUnusable

    settings = load(None, {"redis": url})
    try:
        topics = asyncio.run(mark_restored(url, settings.redis_prefix))
    except ValueError as error:
        raise ConfigurationInvalid(f"redis: {error}") from None
    except StoreUnusable as error:
        raise CommandError(str(error)) from None
    tell(f"{topics} topics begin another epoch, now where a gateway runs, else at its start")


def _restore(backup: Path, store_dir: str | None, replaces: bool) -> None:
    from tidegate.app.stores import restore
    from tidegate.app.stores.schema import FolderUnusable
    from tidegate.app.stores.store import StoreUnusable

    settings = load(None, {"data": store_dir})
    if settings.keeps_nothing:
        raise UsageInvalid("--data :memory: keeps nothing, so there is nothing to restore")
    if not backup.is_file():
        raise UsageInvalid(f"There is no file {backup}; a backup is a copy of tidegate.db.")
    folder = Path(settings.store_dir)
    try:
        restored = restore.restore(backup, folder, replaces=replaces)
    except FolderUnusable as error:
        raise ConfigurationInvalid(str(error)) from None
    except StoreUnusable as error:
        raise CommandError(str(error)) from None
    if restored.before is not None:
        tell(f"The store that was there is {restored.before} now")
    tell(
        f"{restored.topics} topics restored into {folder}; at the next start each has another epoch"
    )
