"""`tidegate demo`: the whole product at once."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import TYPE_CHECKING

import click

from tidegate.app.cli.arguments import PORT, SECONDS
from tidegate.app.cli.installation import missing_java, need
from tidegate.app.cli.pipeline import pipeline_command, pipeline_environment
from tidegate.app.cli.terminal import ConfigurationInvalid, announce, print_note

if TYPE_CHECKING:
    from fastapi import FastAPI

    from tidegate.app.settings.settings import Settings

USUAL_PORT = 8080


@click.command(epilog="\b\nExamples:\n  tidegate demo\n  tidegate demo --no-spark --for 1m")
@click.option("--no-spark", is_flag=True, help="Run without the Spark pipeline.")
@click.option(
    "--for",
    "seconds_max",
    type=SECONDS,
    metavar="TIME",
    help="Stop after this time, such as 30s, counted from the printed address.",
)
@click.option("--port", type=PORT, help=f"Port to listen on, 0 for a free one ({USUAL_PORT}).")
def demo(no_spark: bool, seconds_max: float | None, port: int | None) -> int:
    """Run the gateway, live feeds and Spark at once.

    Exits with 0 if every feed delivered, else 1.
    """
    need("demo --no-spark" if no_spark else "demo", "demo")
    if not no_spark:
        need("demo", "spark")
    reason = None if no_spark else missing_java()
    if reason is not None:
        raise ConfigurationInvalid(reason)
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder:
        return _show(folder, no_spark, seconds_max, port)


def _show(folder: str, no_spark: bool, seconds_max: float | None, port: int | None) -> int:
    """Run the demo once, with its store in this folder."""
    from tidegate.app.cli.demo.show import Show
    from tidegate.app.http.transport.listener import CannotListen, open_listener

    settings = _settings(USUAL_PORT if port is None else port, folder)
    try:
        listener = open_listener(settings)
    except CannotListen as error:
        if port is not None:
            raise ConfigurationInvalid(str(error)) from None
        print_note(f"{error} Taking another port.")
        settings = _settings(0, folder)
        listener = open_listener(settings)
    with listener:
        show = Show(
            settings,
            listener,
            make_app=_make_app,
            spark=None if no_spark else (partial(pipeline_command, "run"), pipeline_environment()),
            seconds_max=seconds_max,
            emit=announce,
            note=print_note,
        )
        return show.run()


def _make_app(settings: Settings) -> FastAPI:
    from tidegate.app.http.application import (
        create_app,  # takes a second, so the show calls it after Spark
    )

    return create_app(settings)


def _settings(port_number: int, folder: str) -> Settings:
    """Return the usual settings on a loopback port, with only warnings in the log."""
    from tidegate.app.cli.settings import load_settings

    flags = {"host": "127.0.0.1", "port": port_number, "data": folder}
    settings = load_settings(overrides=flags)
    if "log_level" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"log_level": "warning"})
