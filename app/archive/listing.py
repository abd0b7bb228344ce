"""The files of one topic in an archive; a folder is read again only after a change."""

from __future__ import annotations

import os
from pathlib import Path

from tidegate.conflation.topics.topic import Archived
from tidegate.keys.archived import Part, reach, topic_folder


class Listing:
    """The parts of one topic in order of publication. It blocks: call it in a thread."""

    def __init__(self, archive: Path, topic: str) -> None:
        self._folder = archive / topic_folder(topic)
        self._days: dict[str, tuple[tuple[int, int], list[tuple[Part, Path]]]] = {}

    def parts(self) -> dict[Part, Path]:
        """Return each part with its path; none if the topic has no archive."""
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
            # The inode detects a folder that was replaced by one with the same time.
            mark = about.st_ino, about.st_mtime_ns
            known = self._days.get(folder.name)
            if known is not None and known[0] == mark:
                return known
            pairs = [(Part.of(path.name), path) for path in folder.iterdir()]
        except FileNotFoundError:
            return None
        return mark, [(part, path) for part, path in pairs if part is not None]


def archived_of(parts: dict[Part, Path], epoch: str) -> Archived | None:
    """Return the gapless range of an epoch that ends with its newest part, or None."""
    found = reach(list(parts), epoch)
    if found is None:
        return None
    first, last = found
    own = [part for part in parts if part.epoch == epoch and part.first >= first]
    return Archived(first, last, tuple((part.stamp_ms, part.first) for part in own))
