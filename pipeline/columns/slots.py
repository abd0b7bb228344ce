"""Bodies that a registered merger combines: not always into one, so a key may have several slots.

The engine's slots (rules 219 and 220) of a lane that nobody joins: a message is put to the merger
with the newest slot of its key, and has one of its own where that declines. A removal takes away
the one slot there is; behind several it has its own, since what is sent before it stays sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from keys.extract import conflation_key
from keys.merging import Merger
from keys.spec import KeySpec
from pipeline.columns.intervals import Column, Runs
from pipeline.merging import registered

APART, OPEN = b"|", b" "


@dataclass(frozen=True, slots=True)
class Slot:
    """A message, or what a merger made of several; `text` is None for nothing but a removal.

    `is_apart`: settled, it does not become one with the slot before it.
    """

    text: bytes | None
    is_apart: bool = False


class Merging:
    """Bodies combined by the merger of a name; `failures` is how often that failed (rule 189).

    One that answers another record's message, by the fields of `key_spec`, has failed as well: a
    sink would take it for a message of that record.
    """

    def __init__(self, name: str, key_spec: KeySpec) -> None:
        self.failures = 0
        self._key_of = conflation_key(key_spec)
        self._merger = Merger(name, registered(name), self._failed)

    def begin(self, bodies: pa.Array) -> list[Slot]:
        """Each by itself."""
        return [Slot(body) for body in bodies.to_pylist()]

    def joined(self, held: list[Slot], new: list[Slot]) -> list[Slot]:
        """One list."""
        return [*held, *new]

    def of_runs(self, kept: list[Slot], runs: Runs) -> tuple[list[Slot], Runs]:
        """The slots of each run, and runs cut where a slot begins."""
        by_key = [kept[place] for place in runs.order.tolist()]
        slots: list[Slot] = []
        starts: list[int] = []
        for start, end in zip(runs.starts.tolist(), runs.ends.tolist(), strict=True):
            slots.append(Slot(by_key[start].text))
            starts.append(start)
            for place in range(start + 1, end):
                merged = self._merged(slots[-1], by_key[place], is_only=starts[-1] == start)
                if merged is None:
                    slots.append(Slot(by_key[place].text, is_apart=True))
                    starts.append(place)
                else:
                    slots[-1] = merged
        return slots, runs.cut(np.array(starts, np.int64))

    def take(self, kept: list[Slot], places: Column) -> list[Slot]:
        """Those at some places."""
        return [kept[place] for place in places.tolist()]

    def put_before(self, kept: list[Slot], place: int, earlier: list[Slot]) -> None:
        """What nobody was told of is counted, and not put to the merger, which may decline."""

    def shown(self, kept: list[Slot]) -> pa.Array:
        """The messages."""
        return pa.array([slot.text for slot in kept], pa.binary())

    def saved(self, kept: list[Slot]) -> pa.Array:
        """A mark and the message."""
        texts = [(APART if slot.is_apart else OPEN) + (slot.text or b"") for slot in kept]
        return pa.array(texts, pa.binary())

    def loaded(self, saved: pa.Array) -> list[Slot]:
        """The slots."""
        return [Slot(text[1:] or None, text[:1] == APART) for text in saved.to_pylist()]

    def _merged(self, newest: Slot, new: Slot, *, is_only: bool) -> Slot | None:
        """The newest slot of a key with one more; None: that has a slot of its own."""
        if new.is_apart:
            return None
        if new.text is None:
            return newest if is_only else None
        if newest.text is None:
            return replace(newest, text=new.text)
        text = self._merger.merged(newest.text, new.text)
        if text is None:
            return None
        if self._key_of(text) != self._key_of(newest.text):
            self.failures += 1
            return None
        return replace(newest, text=text)

    def _failed(self, name: str, error: Exception) -> None:
        self.failures += 1
