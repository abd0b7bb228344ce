"""The verbs of `python -m tidegate.pipeline`, which `tidegate pipeline` shows as its own.

No module of Spark is imported before a verb runs, so that help and complaints wait for none.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tidegate.pipeline.archive.command import PATH, journal, replay
from tidegate.pipeline.operations.run_options import (
    RunOptions,
    master_option,
    with_manner,
)
from tidegate.pipeline.operations.shutdown import complain

CHECKPOINTS = "checkpoints/topics"
PROGRAM = "tidegate pipeline"


def command(words: Sequence[str] | None = None) -> int:
    """Read the words and run; the exit codes are the command line's."""
    try:
        with pipeline.make_context(PROGRAM, list(sys.argv[1:] if words is None else words)) as ctx:
            code: int = pipeline.invoke(ctx)
        return code
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        place = PROGRAM if error.ctx is None else error.ctx.command_path
        complain(f"{error.format_message()} (see {place} --help)")
        return error.exit_code


@click.group(
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def pipeline() -> None:
    """Run the Spark pipeline."""


@pipeline.command()
@click.argument("file", type=PATH, required=False)
@click.option("--topics", is_flag=True, help="Fill each topic whose source says engine: spark.")
@click.option(
    "--gateway",
    metavar="URL",
    help="Whose topics are filled (the file's, else TIDEGATE_GATEWAY, else http://127.0.0.1:8080).",
)
@click.option(
    "--checkpoints", type=PATH, metavar="DIR", help=f"What topics were filled with ({CHECKPOINTS})."
)
@with_manner
def run(
    file: Path | None,
    topics: bool,
    gateway: str | None,
    checkpoints: Path | None,
    manner: RunOptions,
) -> int:
    """Run the streams of a definition file, or fill topics."""
    if not topics:
        for option, given in (("gateway", gateway), ("checkpoints", checkpoints)):
            if given is not None:
                raise click.UsageError(f"--{option} goes with --topics; a file says its own")
        if file is None:
            raise click.UsageError("there is nothing to run: name a file, --topics, or both")
    from tidegate.pipeline.streams.run import Topics, run

    return run(file, manner, Topics(gateway, checkpoints or Path(CHECKPOINTS)) if topics else None)


@pipeline.command()
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
@click.option("--json", is_flag=True, help="The answer as JSON.")
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
    """What other intervals would cost and save, on NDJSON, .gz, Parquet, or a folder of them."""
    from tidegate.pipeline.planner.plan import PlanArguments, plan

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


pipeline.add_command(journal)
pipeline.add_command(replay)
