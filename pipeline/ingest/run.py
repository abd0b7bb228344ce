"""Runs the sources of a definition file until stopped."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tidegate.pipeline.errors import ExtraMissing, PipelineError
from tidegate.pipeline.ingest.definition import IngestDefinition, read_definitions
from tidegate.pipeline.ingest.intake import Intake, stop_intakes
from tidegate.pipeline.operations.shutdown import STOPPING, Stop, complain, say
from tidegate.pipeline.operations.status import StreamStatus, progress_line
from tidegate.pipeline.operations.supervisor import RunOptions, Say, StartGate, Supervisor
from tidegate.pipeline.operations.watch import ending_in_order, status_sinks, watch


def ingest(path: Path, options: RunOptions, gateway: str | None = None) -> int:
    """Run the sources of a file until stopped; return the exit code of the command line.

    `gateway` goes before the one that the file names.

    0: stopped by SIGTERM; 130: by SIGINT; 1, 2, 3 and 78 as for every command, after one line on
    standard error.
    """
    stop = Stop()
    try:
        with stop.listening():
            run_sources(read_definitions(path, gateway), options, stop, say)
    except PipelineError as error:
        complain(str(error))
        return error.exit_code
    return stop.exit_code


def run_sources(
    definitions: list[IngestDefinition], options: RunOptions, stop: Stop, report: Say
) -> None:
    """Run sources as `ingest` does, with errors raised and lines given to `report`.

    Raises:
        PipelineError: what ended the first source that failed for good, as one sentence.
    """
    if options.metrics_port is not None and find_spec("prometheus_client") is None:
        raise ExtraMissing("--metrics-port needs the extra ingest: pip install 'tidegate[ingest]'")
    dead_letters = {each.name: f"topic {each.dead_letters}" for each in definitions}

    def line(now: StreamStatus) -> str:
        return progress_line(now, dead_letters[now.name])

    intakes = [Intake(each, report) for each in definitions]
    members = [
        Supervisor(
            each.definition.name,
            each,
            each.start,
            restarts=options.goes_on,
            say=report,
            gate=StartGate(),  # its own: threads need not start one after the other
        )
        for each in intakes
    ]
    with ExitStack() as opened:
        gateways = {each.gateway for each in definitions}
        sinks = opened.enter_context(status_sinks(options, gateways, line, report))
        opened.enter_context(ending_in_order(partial(stop_intakes, intakes), members, sinks))
        for each, member in zip(definitions, members, strict=True):
            report(f"{each.name}: {each.source.place} to topic {each.topic}")
            member.start_first()
        watch(members, sinks, stop, report)
        if stop.asked:
            report(STOPPING)
    failures = [each.failure for each in members if each.failure is not None]
    if failures:
        raise failures[0]
