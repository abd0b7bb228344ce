"""Which sessions an announcement of the engine announces."""

from __future__ import annotations

from tidegate.conflation.outputs import Announcement, SessionReady, SharedFlush


def announced_by(announcement: Announcement) -> list[str]:
    """The sessions that an announcement tells to take."""
    match announcement:
        case SessionReady(session=session):
            return [session]
        case SharedFlush(members=members):
            return [member.session for member in members]
    return []
