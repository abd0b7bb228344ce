"""The verbs of `python -m tidegate.pipeline`, which `tidegate pipeline` shows as its own.

No module of Spark is imported before a verb runs, so that help and usage errors are quick.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tidegate.pipeline.operations.shutdown import print_error
from tidegate.pipeline.operations.supervisor import DEFAULT_MASTER, LOCALHOST, RunOptions

CHECKPOINTS = "checkpoints/topics"
PATH = click.Path(path_type=Path)
PROGRAM = "tidegate pipeline"
OTHERS = ("ingest", "forward")
"""Commands other than `tidegate pipeline` that run from here."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
Decorator = Callable[[Callable[..., int]], Callable[..., int]]


class _Folder(click.Path):
    """A folder that is mounted: locks and renames are needed, which an object store lacks."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "://" in os.fspath(value):
            self.fail(f"{value} is an address, not a folder that is mounted", param, ctx)
        return super().convert(value, param, ctx)


FOLDER = _Folder(path_type=Path)


def command(words: Sequence[str] | None = None) -> int:
    """Run a verb with its words; return the exit code of the command line.

    With one of `OTHERS` as the first word it is `tidegate` with it, else a verb of
    `tidegate pipeline`.
    """
    given = list(sys.argv[1:] if words is None else words)
    verb: click.Command = pipeline
    program = PROGRAM
    if given[:1] and given[0] in OTHERS:
        name, *given = given
        verb, program = {"ingest": ingest, "forward": forward}[name], f"tidegate {name}"
    try:
        with verb.make_context(program, given) as ctx:
            code: int = verb.invoke(ctx)
        return code
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        # click would print usage and error over several lines; here every error is one sentence.
        place = program if error.ctx is None else error.ctx.command_path
        print_error(f"{error.format_message()} (see {place} --help)")
        return error.exit_code


# --- options of several verbs

master_option = click.option(
    "--master", default=DEFAULT_MASTER, show_default=True, help="Spark master."
)
TOKEN_FILE_VARIABLE = "TIDEGATE_TOKEN_FILE"


def _keep_token_file(context: click.Context, param: click.Parameter, file: str | None) -> None:
    # In the environment, where Spark's own processes find it, and no plan shows it.
    if file is not None:
        os.environ[TOKEN_FILE_VARIABLE] = str(Path(file).resolve())


token_option = click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    expose_value=False,
    callback=_keep_token_file,
    help="File with the token; TIDEGATE_TOKEN takes precedence.",
)
gateway_option = click.option(
    "--gateway",
    metavar="URL",
    envvar="TIDEGATE_GATEWAY",
    show_envvar=True,
    default="http://127.0.0.1:8080",
    show_default=True,
    help="Address of the gateway.",
)
file_gateway_option = click.option(
    "--gateway",
    metavar="URL",
    help="Address of the gateway (the file's, else TIDEGATE_GATEWAY, else http://127.0.0.1:8080).",
)
no_restart_option = click.option(
    "--no-restart", is_flag=True, help="End a stream at its first failure."
)
metrics_port_option = click.option(
    "--metrics-port", type=int, metavar="N", help="Port for Prometheus (default: none)."
)
metrics_host_option = click.option(
    "--metrics-host", default=LOCALHOST, show_default=True, metavar="HOST"
)
ON_SPARK = (
    token_option,
    master_option,
    click.option("--available-now", is_flag=True, help="End when all that is there was read."),
    no_restart_option,
    metrics_port_option,
    metrics_host_option,
)
WITHOUT_SPARK = (
    click.argument("file", type=PATH),
    file_gateway_option,
    token_option,
    no_restart_option,
    metrics_port_option,
    metrics_host_option,
)
OF_A_RUN = ("master", "available_now", "metrics_port", "metrics_host")


def with_options(*options: Decorator) -> Decorator:
    """Return what adds options to a verb that runs streams; it gets `RunOptions` as `options`."""

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def called(*, no_restart: bool, **given: Any) -> int:
            of_run = {name: given.pop(name) for name in OF_A_RUN if name in given}
            return function(options=RunOptions(restarts=not no_restart, **of_run), **given)

        verb: Callable[..., int] = called
        for option in reversed(options):
            verb = option(verb)
        return verb

    return decorate


# --- verbs


@click.group(
    epilog=(
        "\b\nExamples:\n"
        "  tidegate pipeline run streams.toml\n"
        "  tidegate pipeline journal ticks --to archive"
    ),
    no_args_is_help=False,  # a verb that is missing is one sentence too, with exit code 2
    context_settings=CONTEXT,
)
def pipeline() -> None:
    """Run the Spark pipeline."""


@pipeline.command(
    epilog=(
        "\b\nExamples:\n"
        "  tidegate pipeline run streams.toml\n"
        "  tidegate pipeline run streams.toml --available-now --gateway http://gw.example:8080\n"
        "  tidegate pipeline run --topics --metrics-port 8090"
    )
)
@click.argument("file", type=PATH, required=False)
@click.option("--topics", is_flag=True, help="Fill each topic whose source says engine: spark.")
@file_gateway_option
@click.option(
    "--checkpoints", type=FOLDER, metavar="DIR", help=f"Checkpoints of --topics ({CHECKPOINTS})."
)
@with_options(*ON_SPARK)
def run(
    file: Path | None,
    topics: bool,
    gateway: str | None,
    checkpoints: Path | None,
    options: RunOptions,
) -> int:
    """Run the streams of a definition file, or fill topics."""
    if not topics:
        if checkpoints is not None:
            raise click.UsageError("--checkpoints goes with --topics; a file has its own")
        if file is None:
            raise click.UsageError("nothing to run: name a file, --topics, or both")
    # Here, not above: this imports all that reads, conflates and writes.
    from tidegate.pipeline.streams.run import Topics, run

    filled = Topics(gateway, checkpoints or Path(CHECKPOINTS)) if topics else None
    return run(file, options, filled, gateway)


@pipeline.command(
    epilog=(
        "\b\nExample:\n"
        "  tidegate pipeline plan day.ndjson --key /symbol --interval 100ms,1s,5s --time-field /ts"
    )
)
@click.argument("path", type=PATH)
@click.option(
    "--key", "keys", multiple=True, required=True, metavar="/A,/B", help="May be repeated."
)
@click.option(
    "--interval", multiple=True, required=True, metavar="100ms,1s,5s", help="One or more."
)
@click.option("--pace", multiple=True, default=["batch"], metavar="key,batch", show_default=True)
@click.option("--time-field", metavar="/ts", help="Milliseconds, seconds or ISO 8601.")
@click.option("--time-unit", default="auto", show_default=True, help="Of numbers: auto, ms or s.")
@click.option("--json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--chart",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Draw it as .svg or .png; may be repeated.",
)
@master_option
def plan(
    path: Path,
    keys: tuple[str, ...],
    interval: tuple[str, ...],
    pace: tuple[str, ...],
    chart: tuple[Path, ...],
    json: bool,
    **others: Any,
) -> int:
    """Compare what intervals cost and save, on NDJSON, .gz, Parquet, or a folder of them."""
    from tidegate.pipeline.planner.plan import PlanArguments, plan

    # Other names inside: one that may be given several times is singular on the command line.
    return plan(
        PlanArguments(
            path=path,
            keys=list(keys),
            intervals=list(interval),
            paces=list(pace),
            charts=list(chart),
            as_json=json,
            **others,
        )
    )


@pipeline.command(
    epilog=(
        "\b\nExamples:\n"
        "  tidegate pipeline journal ticks --to archive\n"
        "  tidegate pipeline journal ticks --to archive --compact"
    )
)
@click.argument("topic")
@click.option(
    "--to", "archive", required=True, type=FOLDER, metavar="DIR", help="Folder of the archive."
)
@gateway_option
@click.option("--checkpoint", type=FOLDER, metavar="DIR", help="(in the archive)")
@click.option("--interval", default="10s", show_default=True, help="Time between two files.")
@click.option("--compact", is_flag=True, help="Merge small files, and end.")
@with_options(*ON_SPARK)
def journal(**arguments: Any) -> int:
    """Archive a topic to Parquet."""
    from tidegate.pipeline.archive.journal import JournalArguments, journal

    return journal(JournalArguments(**arguments))


@pipeline.command(
    epilog=(
        "\b\nExamples:\n"
        "  tidegate pipeline replay archive --source-topic ticks --topic ticks.again --rate 10x\n"
        "  tidegate pipeline replay day.ndjson --topic ticks.again --key /symbol"
    )
)
@click.argument("path", type=PATH)
@click.option("--topic", required=True, metavar="TOPIC", help="Where it is published.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="/A,/B",
    help="Key of a topic that is not there yet (the archived topic's).",
)
@click.option("--source-topic", metavar="TOPIC", help="Which of an archive's topics.")
@gateway_option
@token_option
@click.option(
    "--rate", metavar="10x", help="10x the recorded speed, 1000 or 500KB a second (at once)."
)
@click.option("--max-gap", metavar="2s", help="The longest silence.")
@click.option("--from", "from_time", metavar="TIME", help="Leave out what is older.")
@click.option("--until", "until_time", metavar="TIME", help="Leave out what is not older.")
@click.option("--time-field", metavar="/ts", help="Of messages that have no other time.")
@click.option("--time-unit", default="auto", show_default=True, help="Of numbers: auto, ms or s.")
@click.option(
    "--checkpoint",
    type=FOLDER,
    metavar="DIR",
    help="Where it notes how far it is (checkpoints/replay-…).",
)
def replay(keys: tuple[str, ...], **arguments: Any) -> int:
    """Publish an archive or a history again: an archive, NDJSON, .gz, Parquet, or a folder."""
    from tidegate.pipeline.archive.replay import ReplayArguments, replay

    return replay(ReplayArguments(keys=list(keys), **arguments))


# --- tidegate ingest, tidegate forward


@click.command(
    epilog=(
        "\b\nA file:\n"
        "  [ingest.sensors]\n"
        '  key = ["/sensor"]\n'
        '  source = {kind = "redis", address = "redis://127.0.0.1:6379/0", stream = "sensors"}\n'
        '  sink = {topic = "sensors"}\n\n'
        "\b\nExamples:\n"
        "  tidegate ingest sources.toml\n"
        "  tidegate ingest sources.toml --gateway http://gw.example:8080 --metrics-port 8090"
    ),
    context_settings=CONTEXT,
)
@with_options(*WITHOUT_SPARK)
def ingest(file: Path, gateway: str | None, options: RunOptions) -> int:
    """Publish what brokers, files and sockets have to topics, without Java."""
    from tidegate.pipeline.ingest.intake import ingest

    return ingest(file, options, gateway)


@click.command(
    epilog=(
        "\b\nA file:\n"
        "  [forward.prices]\n"
        '  source = {topic = "prices", options = "conflation=1s"}\n'
        '  sink = {kind = "redis", address = "redis://127.0.0.1:6379/0", stream = "prices"}\n\n'
        "\b\nExamples:\n"
        "  tidegate forward targets.toml\n"
        "  tidegate forward targets.toml --gateway http://gw.example:8080 --metrics-port 8090"
    ),
    context_settings=CONTEXT,
)
@with_options(*WITHOUT_SPARK)
def forward(file: Path, gateway: str | None, options: RunOptions) -> int:
    """Send topics at their interval to other systems, without Java."""
    from tidegate.pipeline.forward.delivery import forward

    return forward(file, options, gateway)
