"""`pipeline journal` and `replay`: a topic kept as Parquet, and published again."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.pipeline.operations.run_options import RunOptions, with_manner

PATH = click.Path(path_type=Path)

gateway_option = click.option(
    "--gateway",
    metavar="URL",
    envvar="TIDEGATE_GATEWAY",
    show_envvar=True,
    default="http://127.0.0.1:8080",
    show_default=True,
    help="Address of the gateway.",
)


@click.command()
@click.argument("topic")
@click.option("--to", required=True, type=PATH, metavar="DIR", help="Folder of the archive.")
@gateway_option
@click.option("--checkpoint", type=PATH, metavar="DIR", help="(in the archive)")
@click.option("--interval", default="10s", show_default=True, help="Time between two files.")
@click.option("--compact", is_flag=True, help="Put small files together, and end.")
@with_manner
def journal(
    topic: str,
    to: Path,
    gateway: str,
    checkpoint: Path | None,
    interval: str,
    compact: bool,
    manner: RunOptions,
) -> int:
    """Archive a topic to Parquet."""
    from tidegate.pipeline.archive import journal

    return journal.journal(
        journal.JournalArguments(
            topic=topic,
            archive=to,
            gateway=gateway,
            checkpoint=checkpoint,
            interval=interval,
            compact=compact,
            manner=manner,
        )
    )


@click.command()
@click.argument("path", type=PATH)
@click.option("--topic", required=True, metavar="TOPIC", help="Where it is published.")
@click.option("--source-topic", metavar="TOPIC", help="Which of an archive's topics.")
@gateway_option
@click.option(
    "--rate", metavar="10x", help="10x the recorded speed, 1000 or 500KB a second (at once)."
)
@click.option("--max-gap", metavar="2s", help="The longest silence.")
@click.option("--from", "from_time", metavar="TIME", help="What is not older.")
@click.option("--until", metavar="TIME", help="What is older.")
@click.option("--time-field", metavar="/ts", help="Of messages that have no other time.")
@click.option("--time-unit", default="auto", show_default=True, help="Of numbers: auto, ms or s.")
@click.option(
    "--checkpoint",
    type=PATH,
    metavar="DIR",
    help="Where it notes how far it is (checkpoints/replay-…).",
)
def replay(
    path: Path,
    topic: str,
    source_topic: str | None,
    gateway: str,
    rate: str | None,
    max_gap: str | None,
    from_time: str | None,
    until: str | None,
    time_field: str | None,
    time_unit: str,
    checkpoint: Path | None,
) -> int:
    """Publish an archive or a history again: an archive, NDJSON, .gz, Parquet, or a folder."""
    from tidegate.pipeline.archive import replay

    return replay.replay(
        replay.ReplayArguments(
            path=path,
            topic=topic,
            source_topic=source_topic,
            gateway=gateway,
            rate=rate,
            max_gap=max_gap,
            from_time=from_time,
            until_time=until,
            time_field=time_field,
            time_unit=time_unit,
            checkpoint=checkpoint,
        )
    )
