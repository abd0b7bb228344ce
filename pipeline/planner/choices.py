"""What a plan says: each choice with its cost, and which one is recommended."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any

from pipeline.columns.intervals import Interval, Pace
from pipeline.planner.tally import Seen, Sent

ENOUGH = Fraction(9, 10)
"""What part of the longest interval's saving is enough."""

HEADS = ("key", "pace", "interval", "messages", "bytes", "saving", "age p50", "age p99", "keys", "")
LEFT_HEADS = frozenset({"key", "pace", ""})
RECOMMENDED = "<"


@dataclass(frozen=True, slots=True)
class Choice:
    """A key, an interval and a pace, and what would have been sent; `key` as on the command."""

    key: str
    interval_text: str
    interval: Interval
    sent: Sent
    seen: Seen

    @property
    def saving(self) -> Fraction:
        """The part of the messages that is not sent, exactly."""
        return 1 - Fraction(self.sent.messages, self.seen.messages)

    @property
    def group(self) -> tuple[str, Pace]:
        """Choices that differ in nothing but the interval."""
        return self.key, self.interval.pace

    def document(self) -> dict[str, Any]:
        """As in the contract, section 8."""
        return {
            "key": self.key,
            "interval": self.interval_text,
            "pace": str(self.interval.pace),
            "messages": self.sent.messages,
            "bytes": self.sent.bytes,
            "saving": round(float(self.saving), 6),
            "age_p50_ms": self.sent.age_ms(50),
            "age_p99_ms": self.sent.age_ms(99),
            "keys": self.seen.keys,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """All choices of one history: groups of equal key and pace one after the other."""

    choices: list[Choice]

    def recommended(self) -> list[Choice]:
        """For each group the shortest interval that saves enough of what its longest saves."""
        return [_best(list(group)) for _, group in groupby(self.choices, lambda one: one.group)]

    def document(self) -> dict[str, Any]:
        """The answer as JSON; `recommended` is that of the first key and pace asked for."""
        best = self.recommended()
        seen = {choice.key: choice.seen for choice in self.choices}
        return {
            "choices": [choice.document() for choice in self.choices],
            "recommended": best[0].document(),
            "recommendations": [choice.document() for choice in best],
            "history": [_seen_document(key, found) for key, found in seen.items()],
        }

    def table(self) -> str:
        """The answer for people, the recommended rows marked."""
        best = self.recommended()
        rows = [HEADS, *(_cells(choice, choice in best) for choice in self.choices)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_line(row, widths) for row in rows]
        seen = {choice.key: choice.seen for choice in self.choices}
        for key, found in seen.items():
            hot = ", ".join(
                f"{one.key} {one.messages / found.messages:.0%}" for one in found.hot[:3]
            )
            lines.append(
                f"{key}: {found.messages:,} messages, {found.bytes:,} bytes in; "
                f"{found.keys:,} keys whose newest are {found.memory_bytes:,} bytes; most of {hot}"
            )
        return "\n".join(lines) + "\n"


def _best(group: list[Choice]) -> Choice:
    by_length = sorted(group, key=lambda choice: choice.interval.interval_ns)
    enough = by_length[-1].saving * ENOUGH
    return next(choice for choice in by_length if choice.saving >= enough)


def _seen_document(key_text: str, seen: Seen) -> dict[str, Any]:
    return {
        "key": key_text,
        "messages": seen.messages,
        "bytes": seen.bytes,
        "keys": seen.keys,
        "memory_bytes": seen.memory_bytes,
        "hot": [{"key": hot.key, "messages": hot.messages} for hot in seen.hot],
    }


def _cells(choice: Choice, is_recommended: bool) -> tuple[str, ...]:
    return (
        choice.key,
        str(choice.interval.pace),
        choice.interval_text,
        f"{choice.sent.messages:,}",
        f"{choice.sent.bytes:,}",
        f"{float(choice.saving):.1%}",
        f"{choice.sent.age_ms(50):,} ms",
        f"{choice.sent.age_ms(99):,} ms",
        f"{choice.seen.keys:,}",
        RECOMMENDED if is_recommended else "",
    )


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    columns = zip(HEADS, cells, widths, strict=True)
    return "  ".join(
        cell.ljust(width) if head in LEFT_HEADS else cell.rjust(width)
        for head, cell, width in columns
    ).rstrip()
