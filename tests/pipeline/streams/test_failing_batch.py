"""A batch that fails is told in a sentence, however much Java had to say of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError

from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.errors import StreamFailed
from tidegate.pipeline.streams.stream import Stream


class Broken:
    """A sink, and what batches are made of: both say what py4j does."""

    def rows(self, messages: object, batch: object) -> object:
        raise Py4JError("py4j.protocol.Py4JJavaError: An error occurred\n" + "\tat x\n" * 100_000)


def test_what_java_says_of_a_batch_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        '[pipeline.s]\nkey = ["/k"]\ninterval = "1s"\nsink = {topic = "newest"}\n'
        'source = {kind = "tidegate", topic = "raw"}\n'
    )
    [definition] = read_definitions(file)
    stream = Stream(definition)
    stream._batches = cast(Any, Broken())
    context = SimpleNamespace(getLocalProperty=lambda name: "0a")
    messages = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    with pytest.raises(StreamFailed) as raised:
        stream._write_batch(cast(Any, messages), 0)
    assert len(str(raised.value)) < 600
    assert raised.value.__suppress_context__
