"""Runs the sources of a definition file until stopped."""

from __future__ import annotations

from pathlib import Path

from tidegate.pipeline.ingest.definition import IngestDefinition, read_definitions
from tidegate.pipeline.ingest.intake import Intake
from tidegate.pipeline.operations.shutdown import Stop, print_line, until_stopped
from tidegate.pipeline.operations.supervisor import RunOptions, Say
from tidegate.pipeline.operations.threads import run_threads


def ingest(path: Path, options: RunOptions, gateway: str | None = None) -> int:
    """Run the sources of a file until stopped; return the exit code, as `until_stopped` does.

    `gateway` goes before the one that the file names.
    """
    return until_stopped(
        lambda stop: run_sources(read_definitions(path, gateway), options, stop, print_line)
    )


def run_sources(
    definitions: list[IngestDefinition], options: RunOptions, stop: Stop, report: Say
) -> None:
    """Run sources as `ingest` does, with errors raised and lines given to `report`.

    Raises:
        PipelineError: what ended the first source that failed for good, as one sentence.
    """
    run_threads([Intake(each, report) for each in definitions], options, stop, report)
