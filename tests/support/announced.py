"""Which sessions an event of the engine announces."""

from __future__ import annotations

from tidegate.conflation.outputs import Event, SessionReady, SharedFlush


def announced_by(event: Event) -> list[str]:
    """The sessions that an event tells to take."""
    match event:
        case SessionReady(session=session):
            return [session]
        case SharedFlush(members=members):
            return [member.session for member in members]
    return []
