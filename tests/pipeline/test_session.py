from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import SparkUnavailable
from pipeline.session import require_java
from pipeline.streams.run import run


def java_that_says(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))


@pytest.mark.parametrize(
    ("line", "major"), [('openjdk version "17.0.15" 2025', 17), ('java version "21"', 21)]
)
def test_java_17_and_newer_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, major: int
) -> None:
    java_that_says(tmp_path, line, monkeypatch)
    assert require_java() == major


@pytest.mark.parametrize(
    ("line", "said"),
    [('java version "1.8.0_392"', "is version 8"), ("nonsense", "of an unknown version")],
)
def test_an_old_java_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    java_that_says(tmp_path, line, monkeypatch)
    with pytest.raises(SparkUnavailable, match=f"{said}: Spark needs Java 17 or newer"):
        require_java()


def test_no_java_is_told_in_one_sentence_and_exit_78(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    definition = tmp_path / "s.toml"
    definition.write_text(
        '[pipeline.s]\nkey = ["/a"]\ninterval = "1s"\n'
        'source = {kind = "tidegate", topic = "raw"}\nsink = {topic = "newest"}\n'
    )
    assert run(definition) == 78
    said = capsys.readouterr().err
    assert said.startswith("tidegate: no java found: Spark needs Java 17")
    assert said.count("\n") == 1
