"""Folders of definitions: what is read from them, in which order, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.place import MERGERS, parsed
from tests.support.rules import rule
from tidegate.app.definitions.files import TopicFilesInvalid, read_topic_files

CYCLE = """
    topics.a.source = {topic = "b", interval = "1s"}
    topics.b.source = {topic = "a", interval = "1s"}
"""


def folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / f"{name}.toml").write_text(text, "utf-8")
    return path


def names(path: Path) -> list[str]:
    return [each.name for each in read_topic_files(path, MERGERS)]


def test_every_table_is_a_topic_with_the_fields_of_the_contract(tmp_path: Path) -> None:
    text = """
        [topics."px.us"]
        key = ["/symbol"]
        history = {messages = 1000, age = "1h"}
        merge = {"/qty" = "sum"}
        [topics.log]
        type = "series"
    """
    folder(tmp_path, prices=text)
    (tmp_path / "notes.txt").write_text("not read")
    log, px = read_topic_files(tmp_path, MERGERS)
    assert (log.name, log.document, log.file) == ("log", parsed(type="series"), "prices.toml")
    assert px.document == parsed(
        key=["/symbol"], history={"messages": 1000, "age": "1h"}, merge={"/qty": "sum"}
    )


def test_sources_come_before_what_they_fill(tmp_path: Path) -> None:
    def filled(source: str) -> str:
        return f'source = {{topic = "{source}", interval = "1s"}}\n'

    folder(
        tmp_path,
        a=f"[topics.a]\n{filled('z')}[topics.c]\n{filled('a')}[topics.b]\n{filled('elsewhere')}",
        z="[topics.z]\nkey = ['/k']\n[topics.y]",
    )
    assert names(tmp_path) == ["z", "a", "b", "c", "y"]


def test_an_empty_folder_has_no_topics(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    assert names(folder(tmp_path, empty="# nothing yet", none="[topics]")) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[topics.px]\nkey = [", "a.toml: not valid TOML: "),
        ("\x00", "a.toml: not valid TOML: "),
        ("[topic.px]", "a.toml: 'topic' is no [topics.NAME] table"),
        ("topics = 1", "a.toml: topics is a table of topics"),
        ("[topics]\npx = 1", "a.toml: topic px: it is not a table"),
        ('[topics."-px"]', "a.toml: topic '-px': a name is 1 to 255 of A-Z a-z 0-9 . _ -"),
        ('[topics."tidegate.px"]', "a.toml: topic tidegate.px: topics whose name starts with"),
        (
            "[topics.px]\nkeys = []",
            "a.toml: topic px, field 'keys': no such field; did you mean key?",
        ),
        (
            "[topics.px.us]",
            "a.toml: topic px, field 'us': no such field; a topic name with dots must be in",
        ),
        ("[topics.px]\ndescription = 1979-05-27", "a.toml: topic px: JSON has no dates"),
        ("[topics.px]\nschema = {maximum = inf}", "a.toml: topic px: JSON has no dates, no inf"),
        (
            "[topics.px]\nconflation = 'no'",
            "a.toml: topic px, field conflation: conflation is off, conflate, always or",
        ),
        (
            "[topics.px]\nhistory = {age = '5'}",
            "a.toml: topic px, field history/age: ",
        ),
        (
            "[topics.px]\noptions = 'conflation=1s,zzq'",
            "a.toml: topic px, field options, position 14: ",
        ),
        (
            "[topics.px]\nsource = {topic = 'px', interval = '1s'}",
            "a.toml: topic px, field source/topic: The topic would be filled from itself",
        ),
        (
            CYCLE,
            "a.toml: topic a, field source/topic: The topic would be filled from itself",
        ),
    ],
)
def test_what_is_wrong_is_one_line_with_file_topic_and_field(
    tmp_path: Path, text: str, said: str
) -> None:
    folder(tmp_path, a=text)
    with pytest.raises(TopicFilesInvalid) as wrong:
        read_topic_files(tmp_path, MERGERS)
    assert str(wrong.value).startswith(said)
    assert len(str(wrong.value).splitlines()) == 1


@rule("option-1")
def test_options_are_no_longer_than_a_request_s(tmp_path: Path) -> None:
    folder(tmp_path, a="[topics.px]\noptions = 'conflation=1s'")
    [px] = read_topic_files(tmp_path, MERGERS)
    px.check_options(13)
    with pytest.raises(TopicFilesInvalid, match="topic px, field options: options has"):
        px.check_options(12)


def test_a_topic_stands_in_one_file_only(tmp_path: Path) -> None:
    folder(tmp_path, a="[topics.px]", b="[topics.px]")
    with pytest.raises(TopicFilesInvalid) as wrong:
        read_topic_files(tmp_path, MERGERS)
    assert str(wrong.value) == "b.toml: topic px: it is already defined in a.toml"


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    for missing in (tmp_path / "none", Path(__file__)):
        with pytest.raises(TopicFilesInvalid, match="cannot be read"):
            read_topic_files(missing, MERGERS)
    (tmp_path / "a.toml").mkdir()
    with pytest.raises(TopicFilesInvalid, match=r"a\.toml: cannot be read"):
        read_topic_files(tmp_path, MERGERS)
    (tmp_path / "a.toml").rmdir()
    (tmp_path / "a.toml").write_bytes(b"\xff")
    with pytest.raises(TopicFilesInvalid, match=r"a\.toml: not valid TOML"):
        read_topic_files(tmp_path, MERGERS)
