"""Which sessions an announcement of the engine announces."""

from __future__ import annotations

from tidegate.conflation.outputs import Announcement, CohortReady, SessionReady


def announced_by(announcement: Announcement) -> list[str]:
    """The sessions that an announcement tells to take."""
    match announcement:
        case SessionReady(session=session):
            return [session]
        case CohortReady(cohort=cohort):
            return list(cohort.members)
    return []
