"""What a live dict subscribes to: the options and the command that it adds by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidegate.clients.errors import GatewayProblem

READY_SECONDS_MAX = 60.0  # a snapshot of a million records takes a while
# As whole options: a field of that name inside of brackets is none.
_REMOVALS = re.compile(r"(?:^|,)\s*oof\s*(?:,|$)")
_REPLAY = re.compile(r"(?:^|,)\s*bookmark\s*=")
WITHOUT_REMOVALS = frozenset({"sow", "subscribe", "delta_subscribe"})


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """The subscription that a live dict asks for.

    Attributes:
        topic: a topic or a pattern.
        options: the gateway's own language.
        filter: only messages that match.
        order_by: the order of windows and of `in_order`.
        command: replaces the one that `deltas` gives.
        deltas: send changed fields only; the records here stay whole.
        removals: ask for removals; None: where the topic has keys.
    """

    topic: str
    options: str = ""
    filter: str | None = None
    order_by: str | None = None
    command: str | None = None
    deltas: bool = False
    removals: bool | None = None

    @property
    def is_pattern(self) -> bool:
        """True if there may be several topics."""
        return "*" in self.topic or ">" in self.topic

    @property
    def replays(self) -> bool:
        """True if it begins with messages of the journal, and not with a snapshot."""
        return _REPLAY.search(self.options) is not None

    @property
    def wants_removals(self) -> bool:
        """True if it is to ask for removals first.

        Without the option `oof` AMPS and Tidegate send none: a deleted order would stay for good.
        """
        if self.removals is not None:
            return self.removals
        return not (self.replays or self.command in WITHOUT_REMOVALS)

    def params(self, with_removals: bool) -> dict[str, str]:
        """Return the query of the request."""
        options = self._plain_options
        if with_removals and not self._has_removals:
            # Last, so that the positions of problems are those in the user's own options.
            options = f"{options},oof" if options else "oof"
        given = {
            "options": options or None,
            "filter": self.filter,
            "order_by": self.order_by,
            "command": self.command or ("sow_and_delta_subscribe" if self.deltas else None),
            "format": "batch",
        }
        return {name: text for name, text in given.items() if text is not None}

    def has_no_removals(self, problem: GatewayProblem) -> bool:
        """Return True if a refusal is of the option `oof` that was added: the topic has no key.

        Only the gateway knows which topics have none, and their messages are never removed. Any
        other refusal stands: a `conflation_key` of other fields needs a subscription without `oof`,
        whose records of deleted messages would stay. A pattern may have topics of both kinds.
        """
        if not self._adds_removals or self.is_pattern or problem.code != "options-invalid":
            return False
        options = self._plain_options
        return problem.position in (None, len(options) + 1 if options else 0)

    def explained(self, problem: GatewayProblem) -> GatewayProblem:
        """Return a refusal that says how to do without removals, if it names them."""
        if not self._adds_removals or not re.search(r"\boof\b", problem.detail):
            return problem
        detail = f"{problem.detail.removesuffix('.')}; removals=False leaves removals out."
        status, code, title, _, *others = problem.args
        return GatewayProblem(status, code, title, detail, *others)

    @property
    def _plain_options(self) -> str:
        # A comma at the end is allowed, and two of them are not.
        return re.sub(r"[\s,]+$", "", self.options)

    @property
    def _has_removals(self) -> bool:
        return _REMOVALS.search(self.options) is not None

    @property
    def _adds_removals(self) -> bool:
        """True if nobody has asked for removals, and the request asks for them by itself."""
        return self.removals is None and self.wants_removals and not self._has_removals
