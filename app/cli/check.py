"""`tidegate serve --check`: everything that is wrong with a configuration, without a start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tidegate.app.access.access import Access
from tidegate.app.access.policy import PolicyInvalid, PolicySource
from tidegate.app.cli.settings import WORKERS_ALONE, read_settings
from tidegate.app.cli.terminal import ConfigurationInvalid
from tidegate.app.definitions.files import topic_file_faults
from tidegate.app.definitions.mergers import Mergers, MergersInvalid
from tidegate.app.http.transport.certificates import Certificates
from tidegate.app.settings.settings import Settings, SettingsInvalid


def configuration_faults(config: Path | None, flags: Mapping[str, object]) -> list[str]:
    """Return what would keep `serve` from its start, as far as files and settings say it.

    Nothing is connected or written: keys at an address and Redis may still be out.

    Args:
        config: the file of settings, if not `tidegate.toml`.
        flags: values of flags, by setting name; None for one that was not given.
    """
    try:
        settings, faults, unusable = read_settings(config, overrides=flags)
    except ConfigurationInvalid as error:
        return [str(error)]
    return [*faults, *_faults_in_files(settings, unusable)]


def _faults_in_files(settings: Settings, unusable: frozenset[str]) -> Iterator[str]:
    """Yield what is wrong with files, except with those that an unusable setting belongs to."""
    mergers = Mergers()
    try:
        mergers = Mergers.load(settings.mergers)
    except MergersInvalid as error:
        yield f"mergers: {error}"
    if settings.topics is not None:
        yield from topic_file_faults(
            Path(settings.topics), mergers, settings.options_characters_max
        )
    if not any(name.startswith("auth_") for name in unusable):
        yield from _faults_of_access(settings)
    if settings.tls_cert is not None and not any(name.startswith("tls_") for name in unusable):
        try:
            Certificates(settings)
        except SettingsInvalid as error:
            yield str(error)
    if settings.archive is not None:
        from tidegate.app.archive.archive import check_archive

        try:
            check_archive(Path(settings.archive))
        except SettingsInvalid as error:
            yield str(error)
    if settings.redis is not None:
        from tidegate.app.cluster.connection import BusConnection

        try:
            BusConnection(settings.redis, settings.redis_prefix)
        except ValueError as error:
            yield f"redis: {error}"
    if settings.workers > 1 and settings.redis is None and "redis" not in unusable:
        yield WORKERS_ALONE


def _faults_of_access(settings: Settings) -> Iterator[str]:
    if settings.auth_keys is None:
        return
    try:
        Access(settings.model_copy(update={"auth_policy": None}))
    except SettingsInvalid as error:
        yield str(error)
    if settings.auth_policy is not None:
        try:
            PolicySource(Path(settings.auth_policy)).load()
        except PolicyInvalid as error:
            yield f"auth_policy: {error}"
