"""A subscription as granted, with the identities of the feed and the lane that it shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.keys.filter import Filter
from tidegate.keys.merging import Matcher, Merger
from tidegate.keys.order import Order
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.rate import Rate

BATCH_SIZE = 100

# A filter of at most SHORT_FILTER characters costs one unit for a message. A longer one costs a
# unit more for each COMPARISON characters, up to 0.1 ms for a message.
SHORT_FILTER = 40
COMPARISON = 8
UNITS_OF_RECORD = 32  # of a filter, beyond which a record counts as two in a step


class Command(StrEnum):
    """The commands of AMPS."""

    SUBSCRIBE = "subscribe"
    SOW = "sow"
    SOW_AND_SUBSCRIBE = "sow_and_subscribe"
    DELTA_SUBSCRIBE = "delta_subscribe"
    SOW_AND_DELTA_SUBSCRIBE = "sow_and_delta_subscribe"

    @property
    def queries(self) -> bool:
        """True if it begins with the state of the world."""
        return self not in (Command.SUBSCRIBE, Command.DELTA_SUBSCRIBE)

    @property
    def is_delta(self) -> bool:
        """True if changed fields are enough."""
        return self in (Command.DELTA_SUBSCRIBE, Command.SOW_AND_DELTA_SUBSCRIBE)


class NotFound(StrEnum):
    """Where a replay begins if the journal does not reach its bookmark (`bookmark_not_found`)."""

    EPOCH = "epoch"
    NOW = "now"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Replay:
    """A bookmark subscription: every message since `start`, then the live ones.

    `start` is None for the journal's beginning (`epoch`), a bookmark, or wall time in
    milliseconds: the first message not older.
    """

    start: Bookmark | int | None
    not_found: NotFound = NotFound.NOW
    rate: Rate | None = None


AUTO = "auto"
"""The value of `conflation` in place of an interval."""


@dataclass(frozen=True, slots=True)
class Auto:
    """`conflation=auto`: the interval may move between these bounds."""

    min_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class Shown:
    """Options that only the gateway's encoding uses; the engine keeps them."""

    timestamp: bool = False
    receipt: bool = False
    send_keys: bool = False
    no_sowkey: bool = False
    progress: bool = False
    max_age_ns: int | None = None
    auto: Auto | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """The `top_n` rows after the first `skip_n`, by an order; ties are in order of record key."""

    order: Order | None
    top_n: int
    skip_n: int = 0


@dataclass(frozen=True, slots=True)
class FeedId:
    """The content of a board: equal ids, one board.

    With an empty `key_spec` the topic itself is the key. With a `shape` the board is derived: the
    rows of a window, or one row for each group.
    """

    key_spec: KeySpec
    filter: Filter | None = None
    shape: Window | Projection | None = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once, as each subscription is looked up by it several times.
        object.__setattr__(self, "_hash", hash((self.key_spec, self.filter, self.shape)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def filter_cost(self) -> int:
        """What its filter costs for a message beyond a short filter, judged by its length."""
        length = 0 if self.filter is None else len(self.filter.text)
        return max(0, length - SHORT_FILTER) // COMPARISON

    @property
    def record_cost(self) -> int:
        """As how many records one counts in a step that tries the filter on each."""
        return 1 + self.filter_cost // UNITS_OF_RECORD


@dataclass(frozen=True, slots=True)
class LaneId:
    """The identity of a lane, which sends rows of one board: equal ids, one lane, one encoding.

    `interval_ns` 0 is `conflation=none`: every message, or, if its topic conflates `always`, the
    newest of each key at once. `counted`: rows have a receipt (first, last, how many), so the lane
    needs every message. The other fields are the options of the same name.
    """

    feed: FeedId
    interval_ns: int = 0
    pace: str = "batch"
    leading: bool = False
    delta: bool = False
    oof: bool = False
    no_empties: bool = False
    counted: bool = False
    select: Select | None = None
    merge: Reduce | Merger | None = None
    match: KeySpec | Matcher | None = None
    replaces: bool = False
    never: Filter | None = None
    flush_on: Filter | None = None
    always: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once, as that of its feed.
        fields = (getattr(self, each) for each in self.__slots__ if each != "_hash")
        object.__setattr__(self, "_hash", hash(tuple(fields)))

    def __hash__(self) -> int:
        return self._hash

    def __deepcopy__(self, memo: object) -> LaneId:
        return self  # immutable, and shared by rows

    @property
    def queues(self) -> bool:
        """True if what members have not taken counts towards the limits of their sessions."""
        # With an interval a slow reader has at most one row for each key; without one, its rows
        # grow with time.
        return not self.interval_ns

    @property
    def defers_messages(self) -> bool:
        """True if its board may defer messages until a flush: only the first one sets a deadline.

        Not for groups, whose rows stand for the messages of a flush, and not for rules by which a
        message may flush what is held.
        """
        early = (self.pace == "key", self.leading, self.always, self.feed.shape is not None)
        rules = (self.merge, self.flush_on)
        return self.interval_ns > 0 and not any(early) and all(rule is None for rule in rules)

    @property
    def lists(self) -> bool:
        """True if every message is kept for members (`EveryMessageLane`)."""
        return not self.interval_ns and not self.always

    @property
    def asks_board(self) -> bool:
        """True if the board has all that is needed (`IntervalLane`), without state for each key."""
        is_eager = self.always and self.feed.shape is not None  # rows are made with each message
        # Each of these needs more than the newest value of a key.
        special = (self.pace == "key", self.leading, self.delta, self.counted, self.replaces)
        rules = (self.merge, self.match, self.never, self.flush_on)
        return not (is_eager or any(special)) and all(rule is None for rule in rules)


@dataclass(frozen=True, slots=True)
class Subscription:
    """One request as granted: its command, its lane, and what it starts with.

    `resume` is the id after which a reader continues (CONTRACT 4.2), `replay` AMPS's bookmark
    subscription. `order` is that of snapshot rows, of which `batch_size` are sent at a time.
    `counted`: receipts of rows are shown. `defaults` names the options that the topic itself has.
    """

    topic: str
    command: Command
    lane_id: LaneId
    resume: Bookmark | None = None
    replay: Replay | None = None
    order: Order | None = None
    batch_size: int = BATCH_SIZE
    paused: bool = False
    shown: Shown = Shown()
    counted: bool = False
    defaults: frozenset[str] = frozenset()
