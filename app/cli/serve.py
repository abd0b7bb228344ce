"""`tidegate serve`: run the gateway, or check what it would run with."""

from __future__ import annotations

import asyncio
import secrets
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.app.cli.arguments import COUNT, PORT
from tidegate.app.cli.installation import need
from tidegate.app.cli.terminal import (
    CONFIGURATION,
    DONE,
    CommandError,
    ConfigurationInvalid,
    ServerAway,
    UsageInvalid,
    announce,
    print_error,
    print_line,
    print_note,
)

if TYPE_CHECKING:
    from tidegate.app.cluster.workers import ParentLink
    from tidegate.app.settings.settings import Settings
    from tidegate.app.topics.plan import Step

NOTHING_KEPT = "Nothing is kept: topics and messages live in memory until the gateway stops."


@click.command(
    epilog=(
        "\b\nExamples:\n"
        "  tidegate serve\n"
        "  tidegate serve --data /var/lib/tidegate --topics topics\n"
        "  tidegate serve --redis redis://127.0.0.1:6379 --workers 4\n"
        "  tidegate serve --config tidegate.toml --check"
    )
)
@click.option("--host", help="Address to listen on (127.0.0.1).")
@click.option("--port", type=PORT, help="Port to listen on, 0 for a free one (8080).")
@click.option(
    "--data", metavar="DIR", help="Folder of the store (./tidegate-data); :memory: keeps nothing."
)
@click.option(
    "--redis", metavar="URL", help="Redis or Valkey that gateways share, instead of --data."
)
@click.option(
    "--config",
    metavar="FILE.toml",
    type=click.Path(path_type=Path),
    help="File of settings (./tidegate.toml, if there is one).",
)
@click.option("--topics", metavar="DIR", help="Folder of topic definitions, applied at start.")
@click.option("--archive", metavar="DIR", help="Folder of archived topics to read from.")
@click.option("--dry-run", is_flag=True, help="With --topics: print what would change, and exit.")
@click.option(
    "--check", is_flag=True, help="Name all that is wrong with the configuration, and exit."
)
@click.option(
    "--workers", metavar="N", type=COUNT, help="Run N gateways at one address; needs --redis."
)
@click.option("--tls-cert", metavar="FILE", help="Speak TLS, with this certificate and its chain.")
@click.option("--tls-key", metavar="FILE", help="The certificate's key, if not in the same file.")
@click.option(
    "--tls-client-ca", metavar="FILE", help="Know clients by certificates of these authorities."
)
@click.option("--auth-keys", metavar="FILE|URL", help="Ask for tokens, verified with this JWK Set.")
@click.option("--auth-issuer", metavar="TEXT", help="The iss of tokens (tidegate).")
@click.option("--auth-audience", metavar="TEXT", help="The aud of tokens (tidegate).")
@click.option("--auth-policy", metavar="FILE.toml", help="Grants by the values of a claim.")
@click.option(
    "--insecure",
    is_flag=True,
    default=None,
    help="Allow an address that others can reach, without authentication.",
)
def serve(config: Path | None, dry_run: bool, check: bool, **flags: Any) -> int:
    """Run the gateway until SIGINT or SIGTERM."""
    need("serve", "server")
    from tidegate.app.cli.settings import SHARED, WORKERS_ALONE, load_settings

    # Imported late, like all below: `--help` needs none of the server's modules.
    if check:
        from tidegate.app.cli.check import configuration_faults

        return _report(configuration_faults(config, flags))
    settings = load_settings(config, overrides=flags)
    # Workers share no memory: without a bus each would have its own topics and sessions, and a
    # client would see those of the worker that accepted its connection.
    if settings.workers > 1 and settings.redis is None:
        # The exit status tells a wrong command (2) from a wrong configuration (78).
        if flags["workers"] is not None:
            raise UsageInvalid(f"--workers above 1 needs --redis, {SHARED}")
        raise ConfigurationInvalid(WORKERS_ALONE)
    if dry_run:
        return _dry_run(settings)
    return _serve(settings) if settings.workers == 1 else _serve_by_workers(settings)


def _serve(settings: Settings, link: ParentLink | None = None, group_id: str = "") -> int:
    """Run one gateway; a worker has a link to its parent, and the id of its worker group."""
    from tidegate.app.cluster.workers import WorkerGroup
    from tidegate.app.definitions.files import TopicFilesInvalid
    from tidegate.app.http.application import create_app
    from tidegate.app.http.server import StartFailed, serve
    from tidegate.app.http.transport.listener import CannotListen, open_listener
    from tidegate.app.http.watchdog import Watchdog
    from tidegate.app.settings.settings import SettingsInvalid
    from tidegate.app.stores.store import StoreAway, StoreUnusable

    # Until the server listens to it: a start reads all files, and the signal would end it.
    if threading.current_thread() is threading.main_thread():  # Python's rule for signals
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        app = create_app(settings)
        if link is not None:
            app.state.gateway.worker_group = WorkerGroup(group_id, link.number, settings.workers)
        with Watchdog(settings.loop_held_max.seconds) as watchdog:

            def serves() -> None:
                watchdog.is_serving = True

            def started(address: str) -> None:
                # From the next iteration on: this one belongs to the start.
                asyncio.get_running_loop().call_soon(serves)
                _announce(settings, link, address)

            watchdog.is_serving = False  # a start may block the loop: there are no clients yet
            return serve(
                app,
                settings,
                on_shutdown=app.state.gateway.say_goodbye,
                on_started=started,
                # Before requests: with an unusable store the command exits, it serves no 503s.
                prepare=app.state.gateway.open,
                # The kernel spreads connections over the workers' own sockets at the shared
                # address.
                listener=None if link is None else open_listener(settings, shared=True),
                until=None if link is None else link.parent,
                on_reload=None if app.state.access is None else app.state.access.reload,
                loop_factory=watchdog.new_loop,
                loop_figures=watchdog.figures,
            )
    except StoreAway as error:
        raise ServerAway(str(error)) from None
    except (
        CannotListen,
        SettingsInvalid,
        StartFailed,
        StoreUnusable,
        TopicFilesInvalid,
    ) as error:
        raise ConfigurationInvalid(str(error)) from None


def _serve_by_workers(settings: Settings) -> int:
    """Run several gateways, each a process, at one address that this process holds."""
    from tidegate.app.cluster.workers import Workers
    from tidegate.app.http.transport.listener import CannotListen, base_url, hold_address
    from tidegate.app.logs import configure_logging

    configure_logging(settings.log_level, settings.log_format)
    try:
        # Bound without listening, or the kernel would queue connections that nobody accepts here.
        holder = hold_address(settings)
    except CannotListen as error:
        raise ConfigurationInvalid(str(error)) from None
    with holder:
        # Port 0 is resolved once, so that all workers share one port.
        settings = settings.model_copy(update={"port": holder.getsockname()[1]})
        return Workers(
            settings.workers,
            partial(_work, settings, secrets.token_hex(4)),
            grace_s=settings.shutdown_grace.seconds,
            on_ready=partial(_announce, settings, None, base_url(holder, settings)),
        ).run()


def _work(settings: Settings, group_id: str, link: ParentLink) -> int:
    try:
        return _serve(settings, link, group_id)
    # The parent sees a worker's exit status and nothing else, so the sentence is printed here.
    except CommandError as error:
        print_error(str(error))
        return error.exit_code


def _announce(settings: Settings, link: ParentLink | None, address: str) -> None:
    if link is not None:  # the parent prints one address for all workers
        link.report_ready()
        return
    if settings.keeps_nothing:
        print_note(NOTHING_KEPT)
    announce(f"Tidegate listens on {address}")


def _report(faults: Sequence[str]) -> int:
    for fault in faults:
        print_error(fault)
    if faults:
        return CONFIGURATION
    print_line("The configuration is valid. Nothing was connected, opened for writing or started.")
    return DONE


def _dry_run(settings: Settings) -> int:
    """Print a line for each topic: to create, to change (with the fields), or to leave.

    Raises:
        UsageInvalid: no folder of definitions was given.
        ConfigurationInvalid: the folder or the store cannot be used.
    """
    if settings.topics is None:
        raise UsageInvalid("--dry-run needs --topics")
    from tidegate.app.definitions.files import TopicFilesInvalid
    from tidegate.app.settings.settings import SettingsInvalid
    from tidegate.app.stores.store import StoreAway, StoreUnusable

    try:
        # The same plan that a start would carry out.
        steps = asyncio.run(_planned(_without_new_store(settings)))
    except StoreAway as error:
        raise ServerAway(str(error)) from None
    except (SettingsInvalid, StoreUnusable, TopicFilesInvalid) as error:
        raise ConfigurationInvalid(str(error)) from None
    for step in steps:
        print_line(str(step))
    counted = Counter(str(step.what) for step in steps)
    totals = [f"{counted[what]} to {what}" for what in ("create", "change", "leave")]
    print_note(f"{', '.join(totals)}; nothing was changed.")
    return DONE


async def _planned(settings: Settings) -> list[Step]:
    from tidegate.app.gateway import Gateway

    # Only the store is opened: no task runs, and no topic changes.
    gateway = Gateway.build(settings)
    await gateway.open_store()
    await gateway.store.aclose()
    return gateway.declared


def _without_new_store(settings: Settings) -> Settings:
    """Return settings that use the store if it exists; a dry run must not create one."""
    from tidegate.app.settings.settings import MEMORY_ONLY
    from tidegate.app.stores.folder import DATABASE

    if settings.keeps_nothing or (Path(settings.store_dir) / DATABASE).exists():
        return settings
    return settings.model_copy(update={"store_dir": MEMORY_ONLY})
