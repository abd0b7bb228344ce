"""The options language: `conflation=1s,conflation_key=[/tickerId]`, as AMPS spells it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from conflation.duration import DAY, MILLISECOND, duration_text, parse_duration
from conflation.errors import OptionsInvalid
from keys.errors import PathInvalid
from keys.spec import KeySpec, split_list

INTERVAL_NS_MIN = MILLISECOND
INTERVAL_NS_MAX = DAY
LENGTH_MAX = 4_096

_LATER = re.compile(
    "edge|min|max|max_age|never|flush_on|timestamp|receipt|oof|no_empties|send_keys|no_sowkey"
    "|progress|select|projection|grouping|top_n|skip_n|batch_size|bookmark|bookmark_not_found"
    "|rate|rate_max_gap|reduce|live|pause|resume|replace|non_regex_topic"
).fullmatch
_NAME = re.compile(r"[a-z_]+", re.ASCII)
_SPACE = " \t"


@dataclass(frozen=True, slots=True)
class Options:
    """Options as given: None where the request says nothing.

    `interval_ns` is 0 for `conflation=none`; `positions` tells where each name stands.
    """

    interval_ns: int | None = None
    key_spec: KeySpec | None = None
    pace: str | None = None
    positions: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Options:
        """Parse an options string; spaces around `,` and `=` and one trailing comma are fine.

        Raises:
            OptionsInvalid: unknown, repeated, malformed, or not available yet.
        """
        if len(text) > LENGTH_MAX:
            raise OptionsInvalid(f"options have at most {LENGTH_MAX} characters", LENGTH_MAX)
        given: dict[str, tuple[str | None, int]] = {}
        positions: dict[str, int] = {}
        for name, at, assigned, value_at in _assignments(text):
            if name in given:
                raise OptionsInvalid(f"{name} is given twice", at)
            given[name] = (assigned, value_at)
            positions[name] = at
        return cls(
            interval_ns=_interval(*given["conflation"]) if "conflation" in given else None,
            key_spec=_key_spec(*given["conflation_key"]) if "conflation_key" in given else None,
            pace=_pace(*given["pace"]) if "pace" in given else None,
            positions=tuple(positions.items()),
        )

    def given(self, name: str) -> bool:
        """Whether the request names this option."""
        return any(name == given for given, _ in self.positions)

    def position(self, name: str) -> int:
        """The 0-based character where an option stands; 0 for one that was not given."""
        return dict(self.positions).get(name, 0)


def _assignments(text: str) -> list[tuple[str, int, str | None, int]]:
    parts = list(split_list(text))
    if len(parts) > 1 and not parts[-1][0].strip(_SPACE):
        parts.pop()
    if len(parts) == 1 and not text.strip(_SPACE):
        return []
    return [_assignment(part, start) for part, start in parts]


def _assignment(part: str, start: int) -> tuple[str, int, str | None, int]:
    name, equals, assigned = part.partition("=")
    at = start + len(name) - len(name.lstrip(_SPACE))
    name = name.strip(_SPACE)
    if not _NAME.fullmatch(name):
        raise OptionsInvalid("expected the lower-case name of an option", at)
    if _LATER(name):
        raise OptionsInvalid(f"option {name} is not available yet", at)
    if name not in ("conflation", "conflation_key", "pace"):
        raise OptionsInvalid("unknown option; expected conflation, conflation_key or pace", at)
    value_at = start + part.index("=") + 1 if equals else start + len(part)
    value_at += len(assigned) - len(assigned.lstrip(_SPACE))
    return name, at, assigned.strip(_SPACE) if equals else None, value_at


def _interval(text: str | None, position: int) -> int:
    if text == "none":
        return 0
    if text == "auto":
        raise OptionsInvalid("conflation=auto is not available yet", position)
    try:
        interval_ns = parse_duration(text or "")
    except ValueError as error:
        raise OptionsInvalid(f"conflation: {error}, auto or none", position) from None
    if not INTERVAL_NS_MIN <= interval_ns <= INTERVAL_NS_MAX:
        raise OptionsInvalid("conflation: an interval is from 1ms to 1d", position)
    return interval_ns


def _key_spec(text: str | None, position: int) -> KeySpec:
    try:
        return KeySpec.parse(text or "", position)
    except PathInvalid as error:
        raise OptionsInvalid(f"conflation_key: {error.detail}", error.position) from None


def _pace(text: str | None, position: int) -> str:
    if text not in ("batch", "key"):
        raise OptionsInvalid("pace: expected batch or key", position)
    return text


def options_text(interval_ns: int, key_spec: KeySpec, pace: str) -> str:
    """The normalised spelling; parsing it again gives the same subscription."""
    if not interval_ns:
        return "conflation=none"
    return f"conflation={duration_text(interval_ns)},conflation_key={key_spec},pace={pace}"
