"""`tidegate serve --topics DIR --dry-run`: what a start would change, without one."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.errors import DONE, ConfigurationInvalid, UsageInvalid
from app.cli.terminal import say, tell

if TYPE_CHECKING:
    from app.settings import Settings
    from app.topic_plan import Step


def dry_run(settings: Settings) -> int:
    """Print a line a topic: what would be created, changed and in which fields, or left.

    Raises:
        UsageInvalid: there is no folder of definitions to try.
        ConfigurationInvalid: the folder or the store cannot be used.
    """
    if settings.topics_dir is None:
        raise UsageInvalid("--dry-run goes with --topics")
    from app.settings import SettingsInvalid
    from app.stores.store import StoreUnusable
    from app.topic_files import TopicFilesInvalid

    try:
        steps = asyncio.run(_planned(_as_it_is(settings)))
    except (SettingsInvalid, StoreUnusable, TopicFilesInvalid) as error:
        raise ConfigurationInvalid(str(error)) from None
    for step in steps:
        tell(str(step))
    counted = Counter(str(step.what) for step in steps)
    told = [f"{counted[what]} to {what}" for what in ("create", "change", "leave")]
    say(f"{', '.join(told)}; nothing was done.")
    return DONE


async def _planned(settings: Settings) -> list[Step]:
    from app.gateway import Gateway

    gateway = Gateway.build(settings)
    await gateway.open_store()
    await gateway.store.aclose()
    return gateway.declared


def _as_it_is(settings: Settings) -> Settings:
    """Settings that find the store if there is one: to look for it makes none."""
    from app.settings import MEMORY_ONLY
    from app.stores.folder import DATABASE

    if settings.keeps_nothing or (Path(settings.store_dir) / DATABASE).exists():
        return settings
    return settings.model_copy(update={"store_dir": MEMORY_ONLY})
