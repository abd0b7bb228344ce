"""An archive of a gateway's topic, written as `tidegate pipeline journal` writes it."""

from __future__ import annotations

from pathlib import Path

from tests.support.gateways import Remote
from tidegate.pipeline.archive.folder import TopicFolder
from tidegate.pipeline.archive.writing import Edge, archive_rows, edge_of, write_parts
from tidegate.pipeline.format.envelope import envelope_batch


async def keep(running: Remote, archive: Path, topic: str = "px") -> TopicFolder:
    """Archive what the journal has and the archive has not."""
    about = (await running.http.get(f"/v1/topics/{topic}")).json()
    epoch, folder = about["epoch"], TopicFolder(archive, topic)
    first = int(about["journal"]["first"].rpartition("-")[2])
    start = f"{epoch}-{first - 1}"
    answer = await running.http.get(
        f"/v1/topics/{topic}/messages", params={"from": start, "limit": "100000"}
    )
    rows = archive_rows(envelope_batch(answer.content, epoch, first - 1), epoch)
    parts = [part for part in folder.parts() if part.epoch == epoch]
    edge = edge_of(folder.file(parts[-1]), parts[-1]) if parts else Edge(epoch, None, 0)
    folder.unfinished.mkdir(parents=True, exist_ok=True)
    for file in list(write_parts([rows], edge, folder.unfinished, "x")):
        folder.publish(file.name, file.part)
    return folder


async def kept_in_steps(
    running: Remote, archive: Path, *values: object, topic: str = "px", step: int = 2
) -> TopicFolder:
    """Publish, so many at a time, and archive each step, as the journal forgets."""
    for start in range(0, len(values), step):
        await running.publish(*values[start : start + step], topic=topic)
        folder = await keep(running, archive, topic)
    return folder
