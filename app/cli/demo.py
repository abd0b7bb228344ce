"""`tidegate demo`: the whole product at once."""

from __future__ import annotations

import argparse
import tempfile
from typing import TYPE_CHECKING

from app.cli.arguments import Parser, port, seconds
from app.cli.errors import ConfigurationInvalid
from app.cli.pipeline import pipeline_command, pipeline_environment
from app.cli.serve import load
from app.cli.terminal import say, tell

if TYPE_CHECKING:
    from app.settings import Settings

USUAL_PORT = 8080


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "demo", help="gateway, live feeds and Spark at once", allow_abbrev=False
    )
    parser.add_argument("--no-spark", action="store_true", help="leave the Spark pipeline out")
    parser.add_argument(
        "--for",
        type=seconds,
        metavar="TIME",
        dest="seconds_max",
        help="end after, such as 30s, counted from the address being printed",
    )
    parser.add_argument(
        "--port", type=port, help=f"port to listen on, 0 for a free one ({USUAL_PORT})"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show everything; 0 if every feed delivered, 1 if not, 130 when interrupted.

    Raises:
        ConfigurationInvalid: no Java for Spark, or no address to listen on.
    """
    from app.demo.java import missing_java

    reason = None if arguments.no_spark else missing_java()
    if reason is not None:
        raise ConfigurationInvalid(reason)
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder:
        return _show(arguments, folder)


def _show(arguments: argparse.Namespace, folder: str) -> int:
    """One run, with a store in this folder."""
    from app.demo.show import Show
    from app.listener import CannotListen, open_listener

    settings = _settings(USUAL_PORT if arguments.port is None else arguments.port, folder)
    try:
        listener = open_listener(settings)
    except CannotListen as error:
        if arguments.port is not None:
            raise ConfigurationInvalid(str(error)) from None
        say(f"{error} Taking another port.")
        settings = _settings(0, folder)
        listener = open_listener(settings)
    with listener:
        show = Show(
            settings,
            listener,
            spark=None if arguments.no_spark else (pipeline_command, pipeline_environment()),
            seconds_max=arguments.seconds_max,
            tell=tell,
            say=say,
        )
        return show.run()


def _settings(port_number: int, folder: str) -> Settings:
    """The usual settings on a loopback port, with nothing but problems in the log."""
    settings = load(None, {"host": "127.0.0.1", "port": port_number, "data": folder})
    if "log_level" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"log_level": "warning"})
