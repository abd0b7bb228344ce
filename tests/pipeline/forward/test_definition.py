"""Definitions of forwards are read strictly: what is wrong is named with its place."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.pipeline.forward.forwarding import definitions
from tests.support.rules import rule
from tidegate.pipeline.errors import (
    CheckpointUnusable,
    DefinitionInvalid,
    EndpointUnavailable,
    InUse,
)
from tidegate.pipeline.forward.position import PositionFile

GATEWAY = "http://127.0.0.1:8080"
SINK = 'sink = {kind = "redis", address = "redis://u:geheim@h:1/2", stream = "s"}'
FILE = f"""
[forward.a]
source = {{topic = "t"}}
{SINK}
"""

KAFKA = """
[forward.a]
source = {topic = "t"}
sink = {kind = "kafka", brokers = "h:1", topic = "k"}
"""


def test_a_short_definition_has_defaults(tmp_path: Path) -> None:
    [found] = definitions(tmp_path, FILE, GATEWAY)
    assert (found.name, found.gateway, found.topic, found.options, found.filter) == (
        *("a", GATEWAY, "t"),
        *("", None),
    )
    assert found.dead_letters == "t.undelivered"
    assert found.position == tmp_path / "targets.a.position"
    assert found.sink.label == "redis h:1/2 stream s"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FILE + "[ingest.a]", "ingest: runs with tidegate ingest"),
        (FILE.replace("topic =", "topc ="), "forward.a.source.topic: is missing; did you mean"),
        (FILE.replace('"t"', '"px.>"'), "forward.a.source.topic: expected the name of one topic"),
        (FILE.replace('"t"}', '"t", interval = "1s"}'), 'interval: is an option: options = "conf'),
        (FILE.replace('"redis"', '"ftp"'), 'kind: expected one of .*redis.*, found "ftp"'),
        (
            FILE.replace('"s"}', '"s", entry_max = 1}'),
            "entry_max: unknown field; did you mean entries_max",
        ),
        (FILE.replace('"redis:', '"http:'), "sink.address: expected an address such as redis:"),
        (
            FILE + 'dead_letters = "t"',
            "dead_letters: expected another topic than that of the messages",
        ),
        (FILE + 'dead_letters = "tidegate.x"', "dead_letters: expected a name outside"),
        (FILE + "every = 1", "forward.a.every: unknown field"),
        (KAFKA + 'position = "p"', "forward.a.position: the target of kind kafka keeps it"),
        (KAFKA.replace('"h:1"', '"h"'), "sink.brokers: expected brokers such as"),
        (KAFKA.replace('"k"', '"a b"'), "sink.topic: expected the name of a Kafka topic"),
        (
            KAFKA.replace('"k"}', '"k", position_topic = "k"}'),
            "sink.position_topic: expected a topic other than that of the rows",
        ),
        (
            KAFKA.replace('"k"}', '"k", payload = "row"}'),
            "sink.payload: expected value or envelope",
        ),
        (
            KAFKA.replace('"k"}', '"k", transactional_id = "a b"}'),
            "sink.transactional_id: expected an id",
        ),
        (
            KAFKA.replace('"k"}', '"k", options = {"transactional.id" = "geheim"}}'),
            "sink.options: transactional.id is not an option of a forward",
        ),
        (FILE + 'options = "conflation=1s"', "forward.a.options: belongs in source = {topic ="),
        ("[ingest.a]", "ingest: runs with tidegate ingest"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DefinitionInvalid, match=said) as refused:
        definitions(tmp_path, text, GATEWAY)
    assert "geheim" not in str(refused.value)


def test_a_position_belongs_to_its_rows_and_their_target_and_to_one_process(tmp_path: Path) -> None:
    path = tmp_path / "p"
    first = PositionFile(path)
    assert first.resume("a") == ""
    first.note("e-1")
    with pytest.raises(InUse, match="another process forwards from"):
        PositionFile(path)
    first.close()
    for identity, after in (("b", ""), ("a", "e-1")):
        again = PositionFile(path)
        assert again.resume(identity) == after
        again.close()
    path.write_text("{")
    with closing(PositionFile(path)) as broken:
        with pytest.raises(CheckpointUnusable, match="is not a position: remove it to begin"):
            broken.resume("a")
        path.unlink()
        assert broken.resume("a") == ""


def test_a_position_that_cannot_be_written_may_be_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidegate.pipeline.atomic_files.write", full)
    with closing(PositionFile(tmp_path / "p")) as position:
        position.resume("a")
        with pytest.raises(
            EndpointUnavailable, match="p cannot be written: No space left"
        ) as raised:
            position.note("e-1")
    assert raised.value.may_pass


def test_a_target_that_keeps_its_position_has_no_file(tmp_path: Path) -> None:
    [found] = definitions(tmp_path, KAFKA, GATEWAY)
    assert found.position is None
    assert found.sink.label == "kafka topic k"


@rule("forward-2")
def test_options_of_time_do_not_end_a_position_but_rows_and_target_do(tmp_path: Path) -> None:
    def identity(text: str) -> str:
        [found] = definitions(tmp_path, text, GATEWAY)
        return found.identity

    def of_options(options: str) -> str:
        return identity(FILE.replace('"t"', f'"t", options = "{options}"'))

    same = {
        identity(FILE),
        of_options("conflation=2s"),
        of_options("conflation = 1s , pace=key,edge=leading,"),
        of_options("oof,flush_on=[/px > 1],max_age=5s"),
    }
    others = {
        of_options("conflation=1s,conflation_key=[/a,/b]"),
        of_options("select=[-/,+/a]"),
        of_options("select=[-/,+/b]"),
        of_options("top_n=10"),
        of_options("never=[/k IN ('1,conflation=2s', 2)]"),
        of_options("receipt"),
        identity(FILE.replace('"t"', '"u"')),
        identity(FILE.replace('"t"', '"t", filter = "/k > 1"')),
        identity(FILE.replace('"s"', '"other"')),
        identity(FILE.replace(":1/2", ":1?db=1")),
        identity(FILE.replace(":1/2", ":1?db=2")),
    }
    assert len(same) == 1
    assert len(others | same) == 12
    alike = {of_options("top_n=10,skip_n=5"), of_options("skip_n = 5,conflation=3s, top_n=10")}
    assert len(alike) == 1
