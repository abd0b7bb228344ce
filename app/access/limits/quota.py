"""Quotas: how much a subject, a topic and the gateway may have at once, and in a second.

Each limit is a setting. The policy file may give the subjects of a claim's value other limits than
the settings `subject_…`. A breach is `limit-reached`, and names the setting. Without authentication
the subject is nobody, who has the limits of the gateway alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from tidegate.app.access.limits.lane_use import LaneUse, Wanted
from tidegate.app.access.limits.memory import MemoryBound
from tidegate.app.refusals import RETRY_LATER_S, Refused
from tidegate.conflation.errors import LimitReached
from tidegate.keys.text.duration import SECOND, Instant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.app.access.grants import Subject
    from tidegate.app.settings.settings import Settings
    from tidegate.conflation.subscription import LaneId

NOBODY: Final = ""


class LimitsInvalid(ValueError):
    """Limits that cannot be used; `str()` says what was expected."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one subject may have; 0 is any number. The last two of publishing are a second's."""

    sessions: int = 0
    subscriptions: int = 0
    lanes: int = 0
    topics: int = 0
    publish_messages: int = 0
    publish_bytes: int = 0
    journal_reads: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Return the limits of the settings."""
        return cls(*(getattr(settings, f"subject_{each.name}_max") for each in fields(cls)))


NAMES: Final = tuple(each.name for each in fields(Limits))


def parse_limits(document: object) -> dict[str, int]:
    """Parse limits of the policy file: a table of some of the names of `Limits`.

    Raises:
        LimitsInvalid: an unknown name, or a value that is no whole number.
    """
    if not isinstance(document, Mapping):
        raise LimitsInvalid("expected a table such as {sessions = 10}")
    found: dict[str, int] = {}
    for name, most in document.items():
        if name not in NAMES:
            raise LimitsInvalid(f"unknown limit {str(name)[:64]!r}; known: {', '.join(NAMES)}")
        if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most < 1 << 50:
            raise LimitsInvalid(f"{name}: expected a whole number, 0 for no limit")
        found[name] = most
    return found


def widest(each: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the widest limit of each name: values of a claim add up, as their grants do."""
    found: dict[str, int] = {}
    for limits in each:
        for name, most in limits.items():
            known = found.get(name, most)
            found[name] = max(known, most) if known and most else 0
    return found


class Bucket:
    """A token bucket that holds a second's worth, and lets a large request go into debt.

    The size of a request is known only once it has been read, and the next one waits for it.
    """

    __slots__ = ("_at", "_level")

    def __init__(self, per_second: int, now: Instant) -> None:
        # Without a rate something may pass at once, should a policy bring one.
        self._level, self._at = max(1.0, per_second), now

    def wait_s(self, per_second: int, now: Instant) -> int:
        """Return the seconds until something may pass; 0 if it may now."""
        passed = per_second * (now - self._at) / SECOND
        self._level, self._at = min(float(per_second), self._level + passed), now
        return 0 if self._level > 0 else max(1, ceil(-self._level / per_second))

    def spend(self, amount: int) -> None:
        """Take what has passed."""
        self._level -= amount


class _Rate(NamedTuple):
    """What a second may have of messages, or of their bytes: the bucket, and its setting."""

    setting: str
    bucket: Bucket
    per_second: int
    counts_bytes: bool = False


def _rates_set(*rates: _Rate) -> list[_Rate]:
    return [rate for rate in rates if rate.per_second]


class Usage:
    """What one subject has at present, or nobody."""

    __slots__ = (
        "_quotas",
        "bytes",
        "creating",
        "lane_ids",
        "messages",
        "reads",
        "sessions",
        "sub",
        "subscriptions",
        "topics",
    )

    def __init__(self, quotas: Quotas, sub: str, limits: Limits, now: Instant) -> None:
        self.sub = sub
        self.sessions = self.subscriptions = self.reads = 0
        self.creating = 0  # topics that are not there yet
        self.lane_ids: Counter[LaneId] = Counter()
        self.topics: set[str] = set()
        self.messages = Bucket(limits.publish_messages, now)
        self.bytes = Bucket(limits.publish_bytes, now)
        self._quotas = quotas

    def check(self, subject: Subject | None, wanted: Sequence[Wanted], more: int) -> None:
        """Refuse lanes beyond the limits, `more` subscriptions of which are new.

        Raises:
            LimitReached: of the subject, of a topic or of the gateway.
        """
        quotas, lanes = self._quotas, self._quotas.lanes
        if more:
            quotas.memory.check()
        limits = quotas.limits(self.sub, subject)
        while limits.subscriptions and self.subscriptions + more > limits.subscriptions:
            if not lanes.make_room(None, self.sub):
                raise _at_limit("subject_subscriptions_max", limits.subscriptions, "subscriptions")
        most = quotas.subscriptions_max
        while lanes.subscriptions + more > most:
            if not lanes.make_room(None, None):
                raise _at_limit("subscriptions_max", most, "subscriptions")
        while limits.lanes and self._lanes_beyond(limits.lanes, wanted):
            if not lanes.make_room(None, self.sub):
                raise _at_limit("subject_lanes_max", limits.lanes, "different lanes")
        lanes.check(wanted)

    def _lanes_beyond(self, most: int, wanted: Sequence[Wanted]) -> bool:
        """Return True if some of these lanes are new, and too many with what there is."""
        new = {lane_id for _, lane_id in wanted if lane_id not in self.lane_ids}
        return bool(new) and len(self.lane_ids) + len(new) > most

    def hold(self, topic: str, lane_id: LaneId) -> None:
        """Count a subscription that was granted a lane."""
        self.subscriptions += 1
        self.lane_ids[lane_id] += 1
        self._quotas.lanes.hold(topic, lane_id)

    def release(self, topic: str, lane_id: LaneId) -> None:
        """Count such a subscription no longer."""
        self.subscriptions -= 1
        self.lane_ids[lane_id] -= 1
        if not self.lane_ids[lane_id]:
            del self.lane_ids[lane_id]
        self._quotas.lanes.release(topic, lane_id)


class Quotas:
    """Counts what subjects have, and refuses more than the limits allow."""

    def __init__(self, settings: Settings, now: Callable[[], Instant]) -> None:
        """`now`: the clock of rates, monotonic ns."""
        self._settings = settings
        self._now = now
        self.memory = MemoryBound(settings.memory_bytes_max, now, workers=settings.workers)
        self._default = Limits.of(settings)
        self._nobodys = Limits()
        self._usage: dict[str, Usage] = {}
        self.lanes = LaneUse(settings.lanes_max, settings.topic_lanes_max)
        self.subscriptions_max = settings.subscriptions_max
        self._reads = 0
        messages, size_bytes = settings.publish_messages_max, settings.publish_bytes_max
        self._own_rates = _rates_set(
            _Rate("publish_messages_max", Bucket(messages, now()), messages),
            _Rate("publish_bytes_max", Bucket(size_bytes, now()), size_bytes, counts_bytes=True),
        )

    def usage(self, sub: str) -> Usage:
        """Return what a subject has, by its `sub`."""
        found = self._usage.get(sub)
        if found is None:
            self._forget_idle()
            found = self._usage[sub] = Usage(self, sub, self._default, self._now())
        return found

    def limits(self, sub: str, subject: Subject | None) -> Limits:
        """Return the limits of a subject; those of the settings where its token is not known."""
        if sub == NOBODY:
            return self._nobodys
        own = None if subject is None else subject.limits
        return replace(self._default, **own) if own else self._default

    # --- Sessions

    def check_session(self, sub: str, subject: Subject | None) -> None:
        """Refuse one more session of a subject.

        Raises:
            LimitReached: it has as many as it may have, or there is no memory for it.
        """
        self.memory.check()
        most = self.limits(sub, subject).sessions
        if most and self.usage(sub).sessions >= most:
            raise _at_limit("subject_sessions_max", most, "sessions")

    # --- Topics

    def check_topic(self, subject: Subject | None, is_there: Callable[[str], bool]) -> None:
        """Refuse one more topic of a subject.

        Raises:
            Refused, LimitReached: it has as many as it may have, or there is no memory for it.
        """
        self.memory.check()
        if subject is None:
            return
        most, usage = self.limits(subject.sub, subject).topics, self.usage(subject.sub)
        if most and len(usage.topics) + usage.creating >= most:
            usage.topics = {name for name in usage.topics if is_there(name)}
        if most and len(usage.topics) + usage.creating >= most:
            detail = f"A subject has at most {most} topics of its own (subject_topics_max)."
            raise Refused("limit-reached", detail, retry_after_s=RETRY_LATER_S)

    @contextmanager
    def creating_topic(
        self, subject: Subject | None, is_there: Callable[[str], bool]
    ) -> Iterator[None]:
        """Count one more topic of a subject while the block creates it.

        Raises:
            Refused, LimitReached: as `check_topic`.
        """
        self.check_topic(subject, is_there)
        usage = self.usage(NOBODY if subject is None else subject.sub)
        usage.creating += 1
        try:
            yield
        finally:
            usage.creating -= 1

    def note_topic(self, subject: Subject | None, name: str) -> None:
        """Count a topic that a subject has created, if its topics are limited."""
        # Names are let go when the limit is reached: without one they would be kept for ever.
        if subject is not None and self.limits(subject.sub, subject).topics:
            self.usage(subject.sub).topics.add(name)

    # --- Publishing

    def check_publish(self, subject: Subject | None) -> None:
        """Refuse to publish before the rates allow it again; what was sent is noted afterwards.

        Raises:
            Refused, LimitReached: with the seconds to wait; there is no memory for more.
        """
        self.memory.check()
        for rate in self._rates(subject):
            if wait_s := rate.bucket.wait_s(rate.per_second, self._now()):
                detail = f"No more than {rate.per_second} a second are published ({rate.setting})."
                raise Refused("limit-reached", detail, retry_after_s=wait_s)

    def note_publish(self, subject: Subject | None, messages: int, size_bytes: int) -> None:
        """Count what was sent to be published."""
        for rate in self._rates(subject):
            rate.bucket.spend(size_bytes if rate.counts_bytes else messages)

    def _rates(self, subject: Subject | None) -> Sequence[_Rate]:
        """Return the rates that a subject's publishes count against; none where none is set."""
        if subject is None:
            return self._own_rates
        limits, usage = self.limits(subject.sub, subject), self.usage(subject.sub)
        return [
            *self._own_rates,
            *_rates_set(
                _Rate("subject_publish_messages_max", usage.messages, limits.publish_messages),
                _Rate(
                    "subject_publish_bytes_max",
                    usage.bytes,
                    limits.publish_bytes,
                    counts_bytes=True,
                ),
            ),
        ]

    # --- Journals

    @contextmanager
    def reading(self, subject: Subject | None) -> Iterator[None]:
        """Count an answer with a journal while the block runs.

        Raises:
            Refused: limit-reached.
        """
        most = self._settings.journal_reads_max
        if self._reads >= most:
            raise _reading(most, "journal_reads_max")
        usage = self.usage(NOBODY if subject is None else subject.sub)
        of_subject = self.limits(usage.sub, subject).journal_reads
        if of_subject and usage.reads >= of_subject:
            raise _reading(of_subject, "subject_journal_reads_max")
        self._reads += 1
        usage.reads += 1
        try:
            yield
        finally:
            self._reads -= 1
            usage.reads -= 1

    def _forget_idle(self) -> None:
        """Forget subjects that have nothing, once there are many."""
        if len(self._usage) < IDLE_KEPT_MAX:
            return
        # A subject that comes back has a full bucket again, so this runs only to bound memory.
        self._usage = {
            sub: it
            for sub, it in self._usage.items()
            if it.sessions or it.subscriptions or it.reads or it.topics or it.creating
        }


IDLE_KEPT_MAX: Final = 20_000


def _at_limit(name: str, most: int, what: str) -> LimitReached:
    return LimitReached(f"there are at most {most} {what} ({name})")


def _reading(most: int, name: str) -> Refused:
    detail = f"At most {most} journals are read at once ({name})."
    return Refused("limit-reached", detail, retry_after_s=1)
