"""A cohort: members of one lane that have received the same rows, and take together."""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.conflation.frame import Batch
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.lanes.member import Member


class Cohort:
    """Members that share their progress, so one answer of their lane moves them all.

    A flush then costs only the write to the socket of each member. A cohort that is behind is
    served as any member is: with the newest values, in an answer that is encoded once.

    Attributes:
        lane: the lane of all members.
        progress: the progress of all members.
        kind: the gateway's kind of stream; a cohort has streams of one kind.
        members: the members by session; each session has one subscription.
        ready: True once the gateway was sent `CohortReady`, until a take finds nothing.
    """

    __slots__ = ("kind", "lane", "members", "progress", "ready")

    def __init__(self, member: Member, lane: Lane, kind: Hashable) -> None:
        self.lane = lane
        self.progress = member.progress
        self.kind = kind
        self.members: dict[str, Member] = {}
        self.ready = False

    def admits(self, member: Member) -> bool:
        """Return True if a member of this kind has the same progress."""
        progress = self.progress
        is_catching_up = progress.catch_up is not None or progress.unreported
        return not is_catching_up and progress.position == member.position

    def enter(self, member: Member) -> None:
        """Add a member: from here on it shares the cohort's progress."""
        self.members[member.session] = member
        member.share_progress(self.progress)

    def leave(self, member: Member) -> None:
        """Remove a member, which continues alone with a copy of the progress."""
        del self.members[member.session]
        member.stand_alone()

    @property
    def has_rows(self) -> bool:
        """True if a take would move it."""
        member = next(iter(self.members.values()), None)
        return member is not None and self.lane.ready(member)

    def becomes_idle(self) -> bool:
        """Return True if a take would find nothing; the next flush is then announced."""
        self.ready = self.has_rows
        return not self.ready

    def take(self, bytes_max: int) -> Batch | None:
        """Return the lane's next answer for all members; None: there is nothing to take.

        After an answer without rows there may be more.
        """
        member = next(iter(self.members.values()))  # any: their progress is one object
        batch = self.lane.take(member, bytes_max)
        # All rows of an answer may be left out for these members; the next one may have some.
        while batch is not None and not batch.frames and not member.is_catching_up:
            batch = self.lane.take(member, bytes_max)
        return batch
