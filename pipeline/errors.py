"""Why a pipeline stops, each with the exit code of the command line.

PipelineError
|- DefinitionInvalid    the TOML file cannot be understood
|- UsageInvalid         the command was asked for something that makes no sense
|- HistoryUnreadable    no such file, or nothing that can be read
|- HistoryInvalid       a line of a history is no message, or has no time
|- ExtraMissing         the library of a source is not installed
|- SparkUnavailable     no Java 17, no PySpark, a session that does not start
|- CheckpointUnusable   the checkpoint belongs to another stream, or is not whole
|- InUse                another process runs the same stream, forward or replay
|- ArchiveUnusable      an archive that cannot be read or written, or is not whole
|- SourceLost           messages that the stream still needed are gone
|- EndpointUnavailable  a source or a sink does not answer
|- EndpointRefused      a source or a sink refused, such as a password
|- GatewayRefused       the gateway, or a Redis, refused
|  |- RunFenced         a newer run of the stream has taken over
|  `- KeyMismatch       the topic exists with another key
|- GatewayUnreachable   the gateway, or a Redis, does not answer
`- StreamFailed         anything else that ended a query
"""

from __future__ import annotations

import re

EXIT_DONE = 0
EXIT_INTERRUPTED = 130


class PipelineError(Exception):
    """Base: its text is one readable sentence; `exit_code` is the command's.

    `may_pass` says whether another attempt may succeed: such a stream is started again.
    """

    exit_code = 1
    may_pass = False


class DefinitionInvalid(PipelineError):
    """The definition file is wrong; the text names the file and the place in it."""

    exit_code = 78


class UsageInvalid(PipelineError):
    """An argument of the command is wrong; the text says what it should be."""

    exit_code = 2


class HistoryUnreadable(PipelineError):
    """A recorded history is not there, or is not what its name says."""

    exit_code = 2


class HistoryInvalid(PipelineError):
    """A line of a history is no message; the text names the file and the line."""


class ExtraMissing(PipelineError):
    """A source needs a library that is not installed; the text names the extra."""

    exit_code = 78


class SparkUnavailable(PipelineError):
    """Spark cannot start on this machine; the text says what to install."""

    exit_code = 78


class CheckpointUnusable(PipelineError):
    """The checkpoint, or the position of a forward, is of another stream or epoch, or not whole."""

    exit_code = 78


class InUse(PipelineError):
    """Another process has the lock of the checkpoint, of the position or of the sink."""

    exit_code = 78


class ArchiveUnusable(PipelineError):
    """An archive cannot be read or written, is not whole, or another process writes it."""

    exit_code = 78


class SourceLost(PipelineError):
    """The topic no longer holds what the stream has still to read; never skipped in silence."""


class EndpointUnavailable(PipelineError):
    """A source or a sink, such as a broker, does not answer, or a file cannot be written now."""

    exit_code = 3
    may_pass = True


class EndpointRefused(PipelineError):
    """A source or a sink refused, such as a password."""

    may_pass = True


class GatewayRefused(PipelineError):
    """A gateway answered 4xx (the text has the problem), or a Redis refused a command."""

    may_pass = True


class RunFenced(GatewayRefused):
    """A newer run of the stream has committed: this one is a forgotten process."""

    may_pass = False


class KeyMismatch(GatewayRefused):
    """The topic exists with another key than the definition's: somebody has to choose."""

    may_pass = False


class GatewayUnreachable(PipelineError):
    """A gateway gave no answer except 5xx and 429 until the retries ended, or a Redis gave none."""

    exit_code = 3
    may_pass = True


class StreamFailed(PipelineError):
    """A query ended for a reason of Spark's own."""

    may_pass = True


class WorkerLate(StreamFailed):
    """A Python worker of Spark did not start within ten seconds: the machine is overloaded."""


_SENTENCE = re.compile(r"pipeline\.errors\.(\w+): ([^\n]+)")
_RAISED = re.compile(r"^(?!org\.|java\.|py4j\.)[\w.]*(?:Error|Exception): [^\n]+", re.MULTILINE)
_LATE = re.compile(r"Python worker failed to connect back|waiting for the Python worker to connect")
KAFKA_LOST = "not available in Kafka any more"  # from Spark's connector, about a gap
_THROWN = re.compile(r"^: (?:[\w.$]+: )?([^\n]+)", re.MULTILINE)  # below what was called for it
_CAUSED = re.compile(r"^Caused by: [\w.]+: ([^\n]+)", re.MULTILINE)
_FILE = re.compile(r"^.*Encountered error while reading file (\S+)\.\s", re.MULTILINE)
# Spark puts the query's name and plan around the reason.
_QUERY = re.compile(
    r"^\[STREAM_FAILED\].*?terminated with exception: |=== Streaming Query ===.*", re.DOTALL
)
# Spark's errors about its own logs: a file is gone or garbled, or numbers are used twice.
_LOGS = re.compile("SQLSTATE: XXKST|CONCURRENT_STREAM_LOG_UPDATE|Failed to read log file")
_KINDS = {
    kind.__name__: kind
    for kind in (*PipelineError.__subclasses__(), *GatewayRefused.__subclasses__())
}


def from_spark(stream: str, text: str) -> PipelineError:
    """Find our own sentence in the text that Spark wraps around a Python worker's exception.

    `text` is a whole Java exception text with tracebacks in it; the last of ours counts.
    """
    found = [match for match in _SENTENCE.finditer(text) if match[1] in _KINDS]
    if found:
        said = found[-1][2].strip().removeprefix(f"{stream}: ")
        return _KINDS[found[-1][1]](f"{stream}: {said}")
    if KAFKA_LOST in text:
        return SourceLost(
            f"{stream}: Kafka no longer holds messages that were still to be read: the topic was "
            "trimmed, or deleted and made again; remove the checkpoint to read what is there"
        )
    if _LOGS.search(text):
        return CheckpointUnusable(
            f"{stream}: the checkpoint is not whole: {innermost(text)}: "
            "put all of it back, or remove it to begin again"
        )
    if _LATE.search(text):
        return WorkerLate(
            f"{stream}: Python worker failed to connect back within Spark's ten seconds: too much "
            "is going on"
        )
    return StreamFailed(f"{stream}: Spark ended the stream: {innermost(text)}")


def innermost(text: str) -> str:
    """Return the last line of a worker's traceback, or else the first of Spark's own report."""
    said = _QUERY.sub("", text).strip()
    patterns = (_RAISED, _CAUSED, _THROWN)
    raised = next((found[-1:] for each in patterns if (found := each.findall(said))), None)
    raised = raised or said.splitlines()
    if not raised:
        return "no reason given"
    at = _FILE.search(said)
    return f"{at[1]}: {raised[0].strip()}"[:500] if at else str(raised[0]).strip()[:500]
