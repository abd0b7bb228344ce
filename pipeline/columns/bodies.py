"""How bodies of conflated messages are kept: the newest, or what a registered merger makes of all.

With a merger a key may have several bodies, its slots. Reducers are in `json_fields/reducing.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tidegate.keys.merging import Function, Merger
from tidegate.keys.spec import KeySpec, conflation_key
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.intervals import Column, Runs
from tidegate.pipeline.json_fields.field_columns import FieldColumns

# --- registered mergers: imported by name, once in each process


@cache
def registered(name: str) -> Function:
    """Return the function `package.module:function`, as in the gateway's setting `mergers`.

    Raises:
        DefinitionInvalid: it is not here, or cannot be called.
    """
    module_name, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # whatever the module raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DefinitionInvalid(f"merger {name} cannot be imported: {reason}") from None
    if not callable(function):
        raise DefinitionInvalid(f"merger {name} is not a function")
    found: Function = function
    return found


# --- the newest body


class Bodies(Protocol):
    """How the bodies of messages are kept and become one.

    `failures` is how often a merger failed.
    """

    failures: int

    @property
    def names(self) -> Sequence[str]:
        """The names of the fields that `begin` reads as columns."""

    def begin(self, bodies: pa.Array, fields: FieldColumns | None = None) -> Any:
        """Return bodies of messages (null for removals) in this form.

        `fields` are the fields of `names`, if they were found already.
        """

    def joined(self, held: Any, new: Any) -> Any:
        """Return both, one after the other."""

    def of_runs(self, kept: Any, runs: Runs) -> tuple[Any, Runs]:
        """Return one body for each run, and the runs, cut where a merger declined."""

    def take(self, kept: Any, places: Column) -> Any:
        """Return those at some places."""

    def with_unsent(self, kept: Any, runs: Runs) -> Any:
        """Return the last of each run, the others of which were never sent."""

    def shown(self, kept: Any) -> pa.Array:
        """Return the bodies as they are sent."""

    def saved(self, kept: Any) -> pa.Array:
        """Return bytes for each, which outlive a batch."""

    def loaded(self, saved: pa.Array) -> Any:
        """Return what `saved` has saved."""


class Newest:
    """The last body of a run: an Arrow column, of which only winners are ever copied."""

    failures = 0
    names = ()

    def begin(self, bodies: pa.Array, fields: FieldColumns | None = None) -> pa.Array:
        """Return the column itself."""
        return bodies

    def joined(self, held: pa.Array, new: pa.Array) -> pa.Array:
        """Return one column."""
        return pa.concat_arrays([held, new])

    def of_runs(self, kept: pa.Array, runs: Runs) -> tuple[pa.Array, Runs]:
        """Return the last body of each run."""
        return kept.take(pa.array(runs.order[runs.ends - 1])), runs

    def take(self, kept: pa.Array, places: Column) -> pa.Array:
        """Return those at some places."""
        return kept.take(pa.array(places))

    def with_unsent(self, kept: pa.Array, runs: Runs) -> pa.Array:
        """Return the last of each run: an earlier body does not show in a newer one."""
        return self.of_runs(kept, runs)[0]

    def shown(self, kept: pa.Array) -> pa.Array:
        """Return the column itself."""
        return kept

    def saved(self, kept: pa.Array) -> pa.Array:
        """Return the column itself."""
        return kept

    def loaded(self, saved: pa.Array) -> pa.Array:
        """Return the column itself."""
        return saved


# --- bodies that a registered merger combines: a key may have several slots
#
# The engine's slots (rules merge-5 and merge-6): a message goes to the merger with the newest slot
# of its key, and gets a slot of its own if the merger declines. A removal clears a single slot;
# after several it gets its own, because what is sent before it stays sent.

APART, OPEN = b"|", b" "


@dataclass(frozen=True, slots=True)
class Slot:
    """A message, or what a merger made of several; `text` is None for nothing but a removal.

    `is_apart`: settled, it does not become one with the slot before it.
    """

    text: bytes | None
    is_apart: bool = False


class Merging:
    """Bodies combined by the merger of a name; `failures` is how often that failed (rule merge-9).

    One that answers another record's message, by the fields of `key_spec`, has failed as well: a
    sink would take it for a message of that record.
    """

    names = ()

    def __init__(self, name: str, key_spec: KeySpec) -> None:
        self.failures = 0
        self._key_of = conflation_key(key_spec)
        self._merger = Merger(name, registered(name), self._failed)

    def begin(self, bodies: pa.Array, fields: FieldColumns | None = None) -> list[Slot]:
        """Return a slot of one message for each."""
        return [Slot(body) for body in bodies.to_pylist()]

    def joined(self, held: list[Slot], new: list[Slot]) -> list[Slot]:
        """Return one list."""
        return [*held, *new]

    def of_runs(self, kept: list[Slot], runs: Runs) -> tuple[list[Slot], Runs]:
        """Return the slots of each run, and the runs, cut where a slot begins."""
        by_key = [kept[place] for place in runs.order.tolist()]
        slots: list[Slot] = []
        starts: list[int] = []
        for start, end in zip(runs.starts.tolist(), runs.ends.tolist(), strict=True):
            slots.append(Slot(by_key[start].text))
            starts.append(start)
            for place in range(start + 1, end):
                # Only the newest slot takes more: earlier ones are settled (rule merge-5).
                merged = self._merged(slots[-1], by_key[place], is_only=starts[-1] == start)
                if merged is None:
                    slots.append(Slot(by_key[place].text, is_apart=True))
                    starts.append(place)
                else:
                    slots[-1] = merged
        return slots, runs.cut(np.array(starts, np.int64))

    def take(self, kept: list[Slot], places: Column) -> list[Slot]:
        """Return those at some places."""
        return [kept[place] for place in places.tolist()]

    def with_unsent(self, kept: list[Slot], runs: Runs) -> list[Slot]:
        """Return the last of each run.

        Unsent messages are counted, but the merger, which may decline, gets none.
        """
        return self.take(kept, runs.order[runs.ends - 1])

    def shown(self, kept: list[Slot]) -> pa.Array:
        """Return the messages."""
        return pa.array([slot.text for slot in kept], pa.binary())

    def saved(self, kept: list[Slot]) -> pa.Array:
        """Return a mark and the message for each slot."""
        # One byte before the text keeps the slots in a single column of bytes.
        texts = [(APART if slot.is_apart else OPEN) + (slot.text or b"") for slot in kept]
        return pa.array(texts, pa.binary())

    def loaded(self, saved: pa.Array) -> list[Slot]:
        """Return the slots."""
        return [Slot(text[1:] or None, text[:1] == APART) for text in saved.to_pylist()]

    def _merged(self, newest: Slot, new: Slot, *, is_only: bool) -> Slot | None:
        """Return the newest slot of a key with one more message; None if it declined."""
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
