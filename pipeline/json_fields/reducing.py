"""Messages that reducers combine: the last of them, and a column of states for each reducer."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.keys.jsontext import NULL, items
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import read_fields
from tidegate.pipeline.intervals import Column, Runs
from tidegate.pipeline.json_fields.field_columns import (
    MISSING,
    FieldColumn,
    FieldColumns,
    can_find,
    find_fields,
    top_level,
)
from tidegate.pipeline.json_fields.states import (
    StateColumn,
    States,
    last_where,
    states_of,
    states_of_saved,
)
from tidegate.pipeline.json_fields.writing import Writer


class Combined(NamedTuple):
    """The last message of each row, null for removals alone, and a state for each reducer.

    `rows` are the places of the messages in `bodies`, which are copied when they are few.
    """

    bodies: pa.Array
    rows: Column
    columns: list[StateColumn]

    @classmethod
    def of(cls, bodies: pa.Array, columns: list[StateColumn]) -> Combined:
        """Return rows with these messages."""
        return cls(bodies, np.arange(len(bodies)), columns)

    @property
    def last(self) -> pa.Array:
        """The messages."""
        return self.bodies.take(pa.array(self.rows))

    @property
    def is_put(self) -> Column:
        """Whether each row has a message."""
        found: Column = np.asarray(self.bodies.is_valid())[self.rows]
        return found

    def saved(self, place: int) -> list[bytes | None]:
        """Return the saved states of one of the reducers."""
        return self.columns[place].saved(self.is_put.tolist())

    def states(self, place: int) -> States:
        """Return the states of one of the reducers as `keys/` has them."""
        return States.of_saved(self.columns[place].reducer, self.saved(place))


class Folded:
    """Bodies combined by reducers, in order of publication; a removal adds nothing.

    `names` are the fields that it reads as columns; empty if it reads message by message.
    """

    failures = 0

    def __init__(self, reduce: Reduce) -> None:
        self._reducers = [column.reducer for column in reduce.columns]
        self._paths = tuple(dict.fromkeys(column.path for column in reduce.columns))
        self._places = [self._paths.index(column.path) for column in reduce.columns]
        names = [name for name in map(top_level, self._paths) if name and can_find(name)]
        self.names = names if len(names) == len(self._paths) else []
        self._read = read_fields(self._paths)
        self._writer = Writer(reduce)

    def begin(self, bodies: pa.Array, fields: FieldColumns | None = None) -> Combined:
        """Return the state after each message alone; `fields` are fields found already, if any."""
        if not self.names:
            fields = None
        elif fields is None or not fields.keys() >= {*self.names}:
            fields = find_fields(bodies, self.names)
        if fields is None:
            chosen = self._one_by_one(bodies)
        else:
            chosen = [fields[name] for name in self.names]
            if bodies.null_count:
                is_put = np.asarray(bodies.is_valid())
                chosen = [field.only(is_put) for field in chosen]
        pairs = zip(self._reducers, self._places, strict=True)
        return Combined.of(bodies, [states_of(reducer, chosen[place]) for reducer, place in pairs])

    def _one_by_one(self, bodies: pa.Array) -> list[FieldColumn]:
        none = [None] * len(self._paths)
        rows = [none if body is None else self._read(body) for body in bodies.to_pylist()]
        columns = zip(*rows, strict=True) if rows else [()] * len(self._paths)
        return [FieldColumn.of_array(pa.array(column, pa.binary())) for column in columns]

    def joined(self, held: Combined, new: Combined) -> Combined:
        """Return both, one after the other."""
        columns = [self._joined(place, held, new) for place in range(len(self._reducers))]
        bodies = held.last
        rows = np.append(np.arange(len(bodies)), len(bodies) + new.rows)
        return Combined(pa.concat_arrays([bodies, new.bodies]), rows, columns)

    def _joined(self, place: int, held: Combined, new: Combined) -> StateColumn:
        one: Any = held.columns[place]
        later: Any = new.columns[place]
        if isinstance(one, States) and not isinstance(later, States):
            # One odd value must not make states of all that come after it.
            one = states_of_saved(one.reducer, held.saved(place))
        found: StateColumn | None = one.then(later) if type(one) is type(later) else None
        return held.states(place).then(new.states(place)) if found is None else found

    def of_runs(self, kept: Combined, runs: Runs) -> tuple[Combined, Runs]:
        """Return each run combined in order of publication."""
        is_put = kept.is_put
        last = last_where(is_put, runs)
        columns: list[StateColumn] = []
        for place, column in enumerate(kept.columns):
            found = column.of_runs(runs, is_put)
            columns.append(kept.states(place).of_runs(runs, is_put) if found is None else found)
        places = pa.array(kept.rows[last], mask=last == MISSING)
        return Combined.of(kept.bodies.take(places), columns), runs

    def take(self, kept: Combined, places: Column) -> Combined:
        """Return those at some places."""
        columns = [column.take(places) for column in kept.columns]
        rows = kept.rows[places]
        # Of a few the others' bytes need not stay; many are not worth a copy.
        if 2 * len(rows) > len(kept.bodies):
            return Combined(kept.bodies, rows, columns)
        return Combined.of(kept.bodies.take(pa.array(rows)), columns)

    def with_unsent(self, kept: Combined, runs: Runs) -> Combined:
        """Return each run combined: what was never sent counts as well."""
        return self.of_runs(kept, runs)[0]

    def shown(self, kept: Combined) -> pa.Array:
        """Return the combined messages."""
        return self._writer.written(kept.last, [column.shown() for column in kept.columns])

    def saved(self, kept: Combined) -> pa.Array:
        """Return the combinations as JSON text."""
        states = [kept.saved(place) for place in range(len(kept.columns))]
        rows = zip(kept.last.to_pylist(), *states, strict=True)
        return pa.array(
            [
                None if last is None else b"[%s]" % b",".join([last, *(one or NULL for one in row)])
                for last, *row in rows
            ],
            pa.binary(),
        )

    def loaded(self, saved: pa.Array) -> Combined:
        """Return the combinations."""
        none = [None] * (1 + len(self._reducers))
        rows = [
            none
            if text is None
            else [None if one == NULL else one for one in map(bytes, items(text) or ())]
            for text in saved.to_pylist()
        ]
        last, *columns = zip(*rows, strict=True) if rows else [()] * len(none)
        pairs = zip(self._reducers, columns, strict=True)
        return Combined.of(pa.array(last, pa.binary()), [states_of_saved(*pair) for pair in pairs])
