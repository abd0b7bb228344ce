"""Runs the forwards of a definition file until stopped."""

from __future__ import annotations

from pathlib import Path

from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.forward.definition import ForwardDefinition, read_definitions
from tidegate.pipeline.forward.delivery import Forward
from tidegate.pipeline.operations.shutdown import Stop, complain, say
from tidegate.pipeline.operations.supervisor import RunOptions, Say
from tidegate.pipeline.operations.threads import run_threads


def forward(path: Path, options: RunOptions, gateway: str | None = None) -> int:
    """Run the forwards of a file until stopped; return the exit code of the command line.

    `gateway` goes before the one that the file names.

    0: stopped by SIGTERM; 130: by SIGINT; 1, 2, 3 and 78 as for every command, after one line on
    standard error.
    """
    stop = Stop()
    try:
        with stop.listening():
            run_forwards(read_definitions(path, gateway), options, stop, say)
    except PipelineError as error:
        complain(str(error))
        return error.exit_code
    return stop.exit_code


def run_forwards(
    definitions: list[ForwardDefinition], options: RunOptions, stop: Stop, report: Say
) -> None:
    """Run forwards as `forward` does, with errors raised and lines given to `report`.

    Raises:
        PipelineError: what ended the first forward that failed for good, as one sentence.
    """
    dead_letters = {each.name: each.dead_letters for each in definitions}
    forwards = {
        f"{each.name}: topic {each.topic} to {each.sink.place}": Forward(each, report)
        for each in definitions
    }
    run_threads(forwards, dead_letters, options, stop, report)
