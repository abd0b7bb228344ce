"""The identities of feeds and lanes: what subscriptions must have in common to share one."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.keys.filter import Filter
from tidegate.keys.merging import Matcher, Merger
from tidegate.keys.order import Order
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec


@dataclass(frozen=True, slots=True)
class Window:
    """The `top_n` rows behind the first `skip_n`, by an order; ties are in order of record key."""

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


@dataclass(frozen=True, slots=True)
class LaneId:
    """What is sent when, from one board: equal ids, one lane, one encoding.

    `interval_ns` 0 is `conflation=none`: every message, or, where its topic conflates `always`, the
    newest of each key at once. `counted`: rows have a receipt (first, last, how many), so the
    lane looks at every message. The rest is as in the options of the same name.
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

    def __deepcopy__(self, memo: object) -> LaneId:
        return self

    @property
    def queues(self) -> bool:
        """True if what members have not taken counts towards the limits of their sessions."""
        return not self.interval_ns

    @property
    def lists(self) -> bool:
        """True if every message is kept for its members."""
        return not self.interval_ns and not self.always

    @property
    def asks_board(self) -> bool:
        """True if a board alone can answer, without state beside it or a look at each message."""
        is_eager = self.always and self.feed.shape is not None  # else made when somebody looks
        special = (self.pace == "key", self.leading, self.delta, self.counted, self.replaces)
        rules = (self.merge, self.match, self.never, self.flush_on)
        return not (is_eager or any(special)) and all(rule is None for rule in rules)
