from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tidegate.keys.reducers import Reduce
from tidegate.pipeline.columns.bodies import Bodies, Folded, Newest
from tidegate.pipeline.columns.intervals import Interval, Pace, one_run_each

TEXTS = [b'{"v":1}', None, b'{"v":2}', b'{"v":4}']


@pytest.mark.parametrize(
    ("bodies", "shown"),
    [(Newest(), b'{"v":4}'), (Folded(Reduce.parse("[/v:sum,/v:count@n]")), b'{"v":7,"n":3}')],
)
def test_what_was_saved_goes_on(bodies: Bodies, shown: bytes) -> None:
    kept = bodies.begin(pa.array(TEXTS[:3], pa.binary()))
    again = bodies.loaded(bodies.saved(kept))
    joined = bodies.joined(again, bodies.begin(pa.array(TEXTS[3:], pa.binary())))
    codes = np.zeros(4, np.int64)
    runs = one_run_each(Interval(1, Pace.KEY), codes, codes)
    assert bodies.shown(bodies.of_runs(joined, runs)[0]).to_pylist() == [shown]
