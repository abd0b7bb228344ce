from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from tests.pipeline.merged import MERGER
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.bodies import Folded, Merging, Newest
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.intervals import Interval, Pace
from tidegate.pipeline.errors import DefinitionInvalid


@pytest.mark.parametrize(
    ("reduce", "kind"), [(None, Newest), ("[/v:last]", Newest), ("[/v:max]", Folded)]
)
def test_bodies_are_combined_only_where_reducers_ask_for_it(
    reduce: str | None, kind: type[Newest | Folded]
) -> None:
    parsed = None if reduce is None else Reduce.parse(reduce)
    asked = Conflation(KeySpec.of(["/k"]), Interval(1, Pace.KEY), reduce=parsed)
    assert isinstance(asked.conflator().bodies, kind)
    assert len(asked.timeline().waiting.codes) == 0


def test_a_merger_travels_by_its_name_and_is_found_where_it_works() -> None:
    asked = Conflation(KeySpec.of(["/k"]), Interval(1, Pace.KEY), merger=MERGER)
    assert isinstance(pickle.loads(pickle.dumps(asked)).conflator().bodies, Merging)
    missing = replace(asked, merger="no.such:function")
    with pytest.raises(DefinitionInvalid, match=r"^merger no.such:function cannot be imported"):
        missing.conflator()
