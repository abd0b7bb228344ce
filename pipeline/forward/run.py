"""Runs the forwards of a definition file until stopped."""

from __future__ import annotations

from pathlib import Path

from tidegate.pipeline.forward.definition import ForwardDefinition, read_definitions
from tidegate.pipeline.forward.delivery import Forward
from tidegate.pipeline.operations.shutdown import Stop, print_line, until_stopped
from tidegate.pipeline.operations.supervisor import RunOptions, Say
from tidegate.pipeline.operations.threads import run_threads


def forward(path: Path, options: RunOptions, gateway: str | None = None) -> int:
    """Run the forwards of a file until stopped; return the exit code, as `until_stopped` does.

    `gateway` goes before the one that the file names.
    """
    return until_stopped(
        lambda stop: run_forwards(read_definitions(path, gateway), options, stop, print_line)
    )


def run_forwards(
    definitions: list[ForwardDefinition], options: RunOptions, stop: Stop, report: Say
) -> None:
    """Run forwards as `forward` does, with errors raised and lines given to `report`.

    Raises:
        PipelineError: what ended the first forward that failed for good, as one sentence.
    """
    run_threads([Forward(each, report) for each in definitions], options, stop, report)
