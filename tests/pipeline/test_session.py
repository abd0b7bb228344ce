from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import session as module
from pipeline.errors import SparkUnavailable
from pipeline.session import spark_session
from pipeline.streams.run import run


class FakeSpark:
    """Either of Java and the session on it; knows how often it was ended."""

    def __init__(self) -> None:
        self.ends = 0

    def end(self) -> None:
        self.ends += 1

    stop = end


@pytest.mark.parametrize(
    ("error", "closed", "cut_off"),
    [(None, 1, 0), (SparkUnavailable("no"), 1, 0), (KeyboardInterrupt(), 0, 1)],
)
def test_a_session_is_closed_in_order_but_where_it_cannot_be_asked_any_more(
    monkeypatch: pytest.MonkeyPatch, error: BaseException | None, closed: int, cut_off: int
) -> None:
    spark, java = FakeSpark(), FakeSpark()
    monkeypatch.setattr(module, "open_session", lambda master, jars: spark)
    monkeypatch.setattr(module, "_STARTED", [java])

    def work() -> None:
        with spark_session("local"):
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(type(error)):
            work()
    assert (spark.ends, java.ends) == (closed, cut_off)


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
