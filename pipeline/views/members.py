"""The records of some groups, those of a group together, oldest publication first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tidegate.pipeline.columns.intervals import Column

Place = tuple[int, str, int, int]
PLACE = ("batch", "file", "block", "position")
"""Where a record was last published: the number of the batch first, for pieces may come late."""


@dataclass(frozen=True, slots=True)
class Members:
    """Records as columns: `group`, `PLACE`, and cells; group i is from `starts[i]` on."""

    groups: list[str]
    starts: Column
    records: pa.Table

    @classmethod
    def of(cls, records: pa.Table) -> Members:
        """Records in order of publication, brought together by group."""
        encoded = records.column("group").combine_chunks().dictionary_encode()
        codes = np.asarray(encoded.indices)
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)))
        return cls(encoded.dictionary.to_pylist(), starts, records.take(pa.array(order)))

    @property
    def ends(self) -> Column:
        """Where each group ends."""
        return np.append(self.starts, self.records.num_rows)[1:]

    @property
    def sizes(self) -> Column:
        """How many records each group has."""
        return self.ends - self.starts

    def cells(self, place: int) -> pa.Array:
        """One cell of each record."""
        return self.records.column(f"cell_{place}").combine_chunks()

    def parts(self, column: Sequence[bytes | None]) -> list[Sequence[bytes | None]]:
        """A column cut by group."""
        bounds = [*self.starts.tolist(), len(column)]
        return [column[low:high] for low, high in pairwise(bounds)]

    def places(self, rows: Column) -> list[Place]:
        """Where some of the records were published."""
        chosen = self.records.select(PLACE).take(pa.array(rows))
        return list(zip(*(chosen.column(name).to_pylist() for name in PLACE), strict=True))
