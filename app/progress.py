"""Progress: the place up to which a subscription has everything, where no row could say so. Pure.

A filter, for one, may hide whatever is published for hours; the client's id would grow stale.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.sse import Marks, Styles, event
from conflation.bookmark import Bookmark
from conflation.outputs import GroupEnd, Output, Rows
from conflation.sessions.session import SeatId


class Progress:
    """What was told to one stream's subscriptions, for those with the option `progress`.

    `marks`: of a session of several, whose ids are its own.
    """

    def __init__(self, styles: Styles, marks: Marks | None = None) -> None:
        self._styles = styles
        self._marks = marks
        self._told: dict[SeatId, Bookmark] = {}

    @property
    def is_asked_for(self) -> bool:
        """Whether any subscription has the option."""
        return any(style.subscription.shown.progress for style in self._styles.values())

    def wrote(self, outputs: Iterable[Output]) -> None:
        """These go out; the ids among them are progress already."""
        for output in outputs:
            if isinstance(output, GroupEnd):
                self._has_id((output.name, output.topic), Bookmark.parse(output.bookmark))
            elif isinstance(output, Rows) and output.batch.low_water is not None:
                bookmark = Bookmark(output.epoch, output.batch.low_water)
                self._has_id((output.name, output.topic), bookmark)

    def events(self, caught_up: Iterable[tuple[SeatId, Bookmark]]) -> bytes:
        """Tells those that have come further than they know."""
        events: list[bytes] = []
        for seat, bookmark in caught_up:
            style = self._styles[seat]
            known = self._told.get(seat, style.cut)
            if style.subscription.shown.progress and bookmark != known:
                self._told[seat] = bookmark
                name, topic = seat
                document = {"sub": name, "topic": topic, "bookmark": str(bookmark)}
                id_text = self._marks.moved(seat, bookmark) if self._marks else str(bookmark)
                events.append(event("progress", document, id_text=id_text))
        return b"".join(events)

    def _has_id(self, seat: SeatId, bookmark: Bookmark) -> None:
        style = self._styles[seat]
        if style.ids and style.subscription.shown.progress:
            self._told[seat] = bookmark
