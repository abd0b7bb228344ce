"""How bodies of conflated messages are kept: the newest, or what reducers make of all.

What a registered merger makes of them is in `slots`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from keys.reducers import Merged, Reduce
from pipeline.columns.intervals import Column, Runs


class Bodies(Protocol):
    """How the bodies of messages are kept and become one.

    `failures` is how often a merger failed.
    """

    failures: int

    def begin(self, bodies: pa.Array) -> Any:
        """Bodies of messages, null for removals, as this keeps them."""

    def joined(self, held: Any, new: Any) -> Any:
        """One after the other."""

    def of_runs(self, kept: Any, runs: Runs) -> tuple[Any, Runs]:
        """One for each run, and the runs: cut where messages of a run are not to be one."""

    def take(self, kept: Any, places: Column) -> Any:
        """Those at some places."""

    def put_before(self, kept: Any, place: int, earlier: Any) -> None:
        """Let the one at a place stand for an earlier one too."""

    def shown(self, kept: Any) -> pa.Array:
        """As they are sent."""

    def saved(self, kept: Any) -> pa.Array:
        """As they outlive a batch, bytes each."""

    def loaded(self, saved: pa.Array) -> Any:
        """What was saved, to be gone on with."""


class Newest:
    """The last body of a run: an Arrow column, of which only winners are ever copied."""

    failures = 0

    def begin(self, bodies: pa.Array) -> pa.Array:
        """The column itself."""
        return bodies

    def joined(self, held: pa.Array, new: pa.Array) -> pa.Array:
        """One column."""
        return pa.concat_arrays([held, new])

    def of_runs(self, kept: pa.Array, runs: Runs) -> tuple[pa.Array, Runs]:
        """The last of each."""
        return kept.take(pa.array(runs.order[runs.ends - 1])), runs

    def take(self, kept: pa.Array, places: Column) -> pa.Array:
        """Those at some places."""
        return kept.take(pa.array(places))

    def put_before(self, kept: pa.Array, place: int, earlier: Any) -> None:
        """Nothing of what is earlier shows."""

    def shown(self, kept: pa.Array) -> pa.Array:
        """The column itself."""
        return kept

    def saved(self, kept: pa.Array) -> pa.Array:
        """The column itself."""
        return kept

    def loaded(self, saved: pa.Array) -> pa.Array:
        """The column itself."""
        return saved


class Folded:
    """Bodies combined by reducers; None for a removal."""

    failures = 0

    def __init__(self, reduce: Reduce) -> None:
        self._reduce = reduce

    def begin(self, bodies: pa.Array) -> list[Merged | None]:
        """Each the beginning of a combination."""
        begin = self._reduce.begin
        return [None if body is None else begin(body) for body in bodies.to_pylist()]

    def joined(self, held: list[Merged | None], new: list[Merged | None]) -> list[Merged | None]:
        """One list."""
        return [*held, *new]

    def of_runs(self, kept: list[Merged | None], runs: Runs) -> tuple[list[Merged | None], Runs]:
        """Each run combined in order of publication."""
        by_key = [kept[place] for place in runs.order.tolist()]
        pairs = zip(runs.starts.tolist(), runs.ends.tolist(), strict=True)
        return [_combined(by_key[start:end]) for start, end in pairs], runs

    def take(self, kept: list[Merged | None], places: Column) -> list[Merged | None]:
        """Those at some places."""
        return [kept[place] for place in places.tolist()]

    def put_before(
        self, kept: list[Merged | None], place: int, earlier: list[Merged | None]
    ) -> None:
        """Combine with what was combined earlier."""
        kept[place] = _combined([*earlier, kept[place]])

    def shown(self, kept: list[Merged | None]) -> pa.Array:
        """The combined messages."""
        return pa.array([None if one is None else one.payload() for one in kept], pa.binary())

    def saved(self, kept: list[Merged | None]) -> pa.Array:
        """What was merged, as JSON text."""
        return pa.array([None if one is None else one.saved() for one in kept], pa.binary())

    def loaded(self, saved: pa.Array) -> list[Merged | None]:
        """What was merged."""
        loaded = self._reduce.loaded
        return [None if text is None else loaded(text) for text in saved.to_pylist()]


def _combined(parts: Sequence[Merged | None]) -> Merged | None:
    found: Merged | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else found.join(part)
    return found
