"""Which files an archive has of a topic; a folder is read again only when it has changed."""

from __future__ import annotations

import os
from pathlib import Path

from conflation.topics.archived import Archived
from keys.archived import Part, reach, topic_folder


class Listing:
    """The parts of one topic, in order of publication. Blocks: it is for a thread."""

    def __init__(self, archive: Path, topic: str) -> None:
        self._folder = archive / topic_folder(topic)
        self._days: dict[str, tuple[tuple[int, int], list[tuple[Part, Path]]]] = {}

    def parts(self) -> dict[Part, Path]:
        """Each part and where it stands; none where there is no archive of the topic."""
        try:
            with os.scandir(self._folder) as entries:
                days = [each for each in entries if each.name.startswith("date=")]
        except FileNotFoundError:
            days = []
        found = {day.name: self._day(Path(day.path)) for day in days}
        self._days = {name: each for name, each in found.items() if each is not None}
        return dict(sorted(pair for _, pairs in self._days.values() for pair in pairs))

    def _day(self, folder: Path) -> tuple[tuple[int, int], list[tuple[Part, Path]]] | None:
        try:
            about = folder.stat()
            # Another folder may have taken its place, so its number counts as well.
            mark = about.st_ino, about.st_mtime_ns
            known = self._days.get(folder.name)
            if known is not None and known[0] == mark:
                return known
            pairs = [(Part.of(path.name), path) for path in folder.iterdir()]
        except FileNotFoundError:
            return None
        return mark, [(part, path) for part, path in pairs if part is not None]


def archived_of(parts: dict[Part, Path], epoch: str) -> Archived | None:
    """What an archive has of an epoch without a hole, up to its newest part."""
    found = reach(list(parts), epoch)
    if found is None:
        return None
    first, last = found
    own = [part for part in parts if part.epoch == epoch and part.first >= first]
    return Archived(first, last, tuple((part.stamp_ms, part.first) for part in own))
