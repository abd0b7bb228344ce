"""What a start of an archiver mends, and where it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from pipeline.archive.archiving import Archiving, Errand
from pipeline.archive.folder import TopicFolder
from pipeline.errors import GatewayUnreachable, SourceLost, StreamFailed

if TYPE_CHECKING:
    from collections.abc import Callable


def archiving(folder: Path, ask_epoch: Callable[[], str], said: list[str]) -> Archiving:
    errand = Errand("http://127.0.0.1:1", "ticks", 1_000, folder / "_checkpoint")
    return Archiving(TopicFolder(folder, "ticks"), errand, "e1", ask_epoch, said.append)


def test_messages_that_are_gone_are_mended_by_another_epoch_alone(tmp_path: Path) -> None:
    """Rule 563."""
    epochs = iter(["e1", "e2"])
    stream = archiving(tmp_path, lambda: next(epochs), [])
    assert not stream.mends(StreamFailed("ticks: no room"))
    assert not stream.mends(SourceLost("ticks: gone"))
    assert stream.mends(SourceLost("ticks: gone"))


def test_while_nobody_tells_the_epoch_the_next_start_will_see(tmp_path: Path) -> None:
    def ask() -> str:
        raise GatewayUnreachable("nobody")

    stream = archiving(tmp_path, ask, [])
    assert stream.mends(SourceLost("ticks: gone"))
    stream.query = cast(Any, "of an earlier start")
    with pytest.raises(GatewayUnreachable):
        stream.start(cast(Any, None))
