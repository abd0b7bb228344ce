from __future__ import annotations

import pytest

from tidegate.pipeline.errors import (
    CheckpointUnusable,
    DefinitionInvalid,
    GatewayUnreachable,
    SourceLost,
    StreamFailed,
    WorkerLate,
    from_spark,
)

WRAPPED = """\
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred. SQLSTATE: 39000
Traceback (most recent call last):
  File "x.py", line 1, in read
    raise SourceLost(said)
tidegate.pipeline.errors.SourceLost: messages are gone
=== Streaming Query ===
"""


def test_our_sentence_is_found_inside_what_spark_wraps_around_it() -> None:
    found = from_spark("newest", WRAPPED)
    assert (type(found), str(found)) == (SourceLost, "newest: messages are gone")
    twice = from_spark("newest", f"tidegate.pipeline.errors.{type(found).__name__}: {found}")
    assert str(twice) == str(found)
    unreachable = from_spark("s", WRAPPED.replace("SourceLost: mess", "GatewayUnreachable: mess"))
    assert (type(unreachable), unreachable.exit_code) == (GatewayUnreachable, 3)


def test_a_definition_that_only_a_worker_finds_wrong_is_still_wrong() -> None:
    found = from_spark("s", WRAPPED.replace("SourceLost: mess", "DefinitionInvalid: from: mess"))
    assert (type(found), found.exit_code) == (DefinitionInvalid, 78)


def test_an_error_of_others_is_the_last_line_of_the_traceback() -> None:
    found = from_spark("newest", WRAPPED.replace("tidegate.pipeline.errors.SourceLost", "KeyError"))
    assert isinstance(found, StreamFailed)
    assert str(found) == "newest: Spark ended the stream: KeyError: messages are gone"
    assert str(from_spark("newest", "boom\n=== Logical Plan ===\nscan")).endswith("boom")
    assert str(from_spark("newest", "boom")).endswith("boom")
    wrapped = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: batch 1 is gone\n"
        "=== Streaming Query ===\nIdentifier: s [id = 1]\n+- Relation[offset]"
    )
    assert str(from_spark("s", wrapped)) == "s: Spark ended the stream: batch 1 is gone"


def test_a_file_that_cannot_be_read_is_named() -> None:
    said = (
        "An error occurred while calling o1.collectToPython.\n"
        ": org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while "
        "reading file file:///in/a.ndjson.gz.  SQLSTATE: KD001\n\tat org.apache.spark\n"
        "Caused by: java.io.EOFException: Unexpected end of input stream\n\tat java.io\n"
    )
    found = str(from_spark("s", said))
    assert found.endswith(
        "ended the stream: file:///in/a.ndjson.gz: Unexpected end of input stream"
    )


def test_an_error_of_java_is_its_innermost_cause() -> None:
    text = (
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call "
        "last):\n  File x\npy4j.protocol.Py4JJavaError: An error occurred while calling o1\n"
        "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n"
        "\tat org.apache.spark\nCaused by: java.io.EOFException: the stream ends here\n\tat java.io"
    )
    assert str(from_spark("s", text)) == "s: Spark ended the stream: the stream ends here"
    thrown = "An error occurred while calling o264.load.\n: java.io.EOFException\n\tat java.io.Data"
    assert str(from_spark("s", thrown)) == "s: Spark ended the stream: java.io.EOFException"
    said = thrown.replace("Exception", "Exception: it ends here")
    assert str(from_spark("s", said)) == "s: Spark ended the stream: it ends here"


def test_what_spark_says_of_its_logs_is_about_the_checkpoint() -> None:
    found = from_spark("s", "batch 2 doesn't exist SQLSTATE: XXKST")
    assert isinstance(found, CheckpointUnusable)
    assert str(found).startswith("s: the checkpoint is not whole: batch 2 doesn't exist")
    assert str(from_spark("newest", "")).endswith("no reason given")


@pytest.mark.parametrize(
    "said",
    [
        "Python worker failed to connect back.",
        "Caused by: x: Timed out while waiting for the Python worker to connect back",
    ],
)
def test_a_worker_that_starts_too_late_is_an_error_of_its_own(said: str) -> None:
    found = from_spark("s", f"[STREAM_FAILED] Query terminated\n{said}\n")
    assert isinstance(found, WorkerLate)
    assert found.may_pass


def test_what_kafka_has_lost_is_lost() -> None:
    said = "Some data may have been lost because they are not available in Kafka any more;\n"
    found = from_spark("s", said + "Reason: Partition t-2 offset was changed from 21 to 2.\n")
    assert isinstance(found, SourceLost)
    assert str(found).startswith("s: Kafka no longer holds messages")
    assert "\n" not in str(found)
