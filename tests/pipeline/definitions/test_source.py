from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.definitions.streams_file import check_mistake


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('topic = "ticks"}', 'topic = "_x"}', "newest.source.topic: expected a topic name"),
        ('topic = "ticks"}', 'topic = "t", from = "1"}', "from: expected epoch, now or a bookmark"),
        ('topic = "ticks"}', 'topic = "t", from = "a b-7"}', "from: expected epoch, now or a b"),
        ('topic = "ticks"}', 'topic = "t", from = "e-07"}', "from: expected epoch, now or a b"),
        ('topic = "ticks"}', 'topic = "t", from = "\u00e9-1"}', "from: expected epoch, now or a b"),
        (
            'topic = "ticks"}',
            'topic = "t", path = "x"}',
            "newest.source.path: unknown field; known are",
        ),
        ('topic = "ticks"}', 'topic = "t", address = "x:secret"}', "source.address: expected an"),
        ('kind = "tidegate"', 'kind = "tape"', "source.kind: expected tidegate, redis, kafka, "),
        ('topic = "ticks"}', 'topik = "t"}', "did you mean topic instead of topik?"),
        ('topic = "ticks"}', 'topic = "t", rows_per_batch = 1}', "stands beside source, not in"),
        ('topic = "ticks"}', 'topic = "t", prefix = "{p}"}', "source.prefix: expected the redis_p"),
        ('kind = "tidegate", ', "", "source.kind: is missing, expected tidegate, redis, kafka, "),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    check_mistake(tmp_path, old, new, said)
