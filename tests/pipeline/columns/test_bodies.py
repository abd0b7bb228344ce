"""Bodies of messages are kept, merged and saved as the engine does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.pipeline.merger import MERGER, by_value
from tests.support.rules import rule
from tidegate.keys.merging import Verdict
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.bodies import Bodies, Merging, Newest, Slot, registered
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.intervals import Interval, Pace, one_run_each
from tidegate.pipeline.json_fields.reducing import Folded

TEXTS = [b'{"v":1}', None, b'{"v":2}', b'{"v":4}']


@pytest.mark.parametrize(
    ("bodies", "shown"),
    [(Newest(), b'{"v":4}'), (Folded(Reduce.parse("[/v:sum,/v:count@n]")), b'{"v":7,"n":3}')],
)
def test_a_restored_state_continues(bodies: Bodies, shown: bytes) -> None:
    kept = bodies.begin(pa.array(TEXTS[:3], pa.binary()))
    again = bodies.loaded(bodies.saved(kept))
    joined = bodies.joined(again, bodies.begin(pa.array(TEXTS[3:], pa.binary())))
    codes = np.zeros(4, np.int64)
    runs = one_run_each(Interval(1, Pace.KEY), codes, codes)
    assert bodies.shown(bodies.of_runs(joined, runs)[0]).to_pylist() == [shown]


KEY = KeySpec.of(["/k"])


def summed(current: Any, new: Any) -> Any:
    """Sums up to 9; a message that says so is kept apart, replaces, or is passed over."""
    if "say" in new:
        return Verdict(new["say"])
    total = current["v"] + new["v"]
    return Verdict.NO_CONFLATION if total > 9 else {"k": current["k"], "v": total}


def renamed(current: Any, new: Any) -> Any:
    return {**new, "k": "other"}


def slots_of(bodies: Merging, kept: list[Slot]) -> list[Slot]:
    none = np.zeros(len(kept), np.int64)
    slots, runs = bodies.of_runs(kept, one_run_each(Interval(1, Pace.KEY), none, none))
    assert len(runs.starts) == len(runs.ends) == len(runs.due_ns) == len(slots)
    return slots


def merging(function: str) -> Merging:
    return Merging(f"tests.pipeline.columns.test_bodies:{function}", KEY)


def begun(bodies: Merging, *texts: str | None) -> list[Slot]:
    return bodies.begin(pa.array([text and text.encode() for text in texts], pa.binary()))


@rule("merge-9", "merge-6")
@pytest.mark.parametrize(
    ("say", "shown"),
    [
        ("keep current", ['{"k":1,"v":5}']),
        ("keep new", ['{"k":1,"v":3,"say":"keep new"}']),
        ("no conflation", ['{"k":1,"v":5}', '{"k":1,"v":3,"say":"no conflation"}']),
        ("", ['{"k":1,"v":5}', '{"k":1,"v":3,"say":""}']),
    ],
)
def test_the_answers_beside_a_merged_message(say: str, shown: list[str]) -> None:
    bodies = merging("summed")
    kept = begun(bodies, '{"k":1,"v":2}', '{"k":1,"v":3}', f'{{"k":1,"v":3,"say":"{say}"}}')
    slots = slots_of(bodies, kept)
    assert bodies.shown(slots).to_pylist() == [text.encode() for text in shown]
    assert bodies.failures == (say == ""), "no verdict of that name"


@rule("merge-9", "merge-6")
def test_settled_slots_stay_apart_and_the_newest_merges_on() -> None:
    bodies = merging("summed")
    slots = slots_of(bodies, begun(bodies, '{"k":1,"v":8}', '{"k":1,"v":1}', '{"k":1,"v":2}'))
    again = bodies.loaded(bodies.saved(slots))
    assert again == slots == [Slot(b'{"k":1,"v":9}'), Slot(b'{"k":1,"v":2}', is_apart=True)]
    more = slots_of(bodies, bodies.joined(again, begun(bodies, '{"k":1,"v":3}')))
    assert more == [Slot(b'{"k":1,"v":9}'), Slot(b'{"k":1,"v":5}', is_apart=True)]
    # 4 and 5 would be one, had they not been kept apart: what they are made of was 12 and more.
    apart = [Slot(b'{"k":1,"v":4}'), Slot(b'{"k":1,"v":5}', is_apart=True)]
    assert slots_of(bodies, apart) == apart


@rule("merge-9", "merge-6")
def test_a_removal_clears_one_slot_and_follows_several() -> None:
    bodies = merging("summed")
    assert slots_of(bodies, begun(bodies, '{"k":1,"v":1}', None)) == [Slot(b'{"k":1,"v":1}')]
    slots = slots_of(bodies, begun(bodies, '{"k":1,"v":8}', '{"k":1,"v":5}', None))
    assert slots[2:] == [Slot(None, is_apart=True)]
    assert bodies.loaded(bodies.saved(slots)) == slots
    later = slots_of(bodies, bodies.joined(slots, begun(bodies, '{"k":1,"v":9}', None)))
    assert later[2:] == [Slot(b'{"k":1,"v":9}', is_apart=True), Slot(None, is_apart=True)]


@rule("merge-9", "merge-6")
def test_another_records_message_is_a_failure() -> None:
    bodies = merging("renamed")
    kept = begun(bodies, '{"k":1}', '{"k":1}', '{"k":1}')
    assert len(slots_of(bodies, kept)) == 3
    assert bodies.failures == 2


@rule("merge-9", "merge-6")
def test_unsent_messages_do_not_reach_the_merger() -> None:
    bodies = merging("summed")
    kept = begun(bodies, '{"k":1,"v":1}', '{"k":1,"v":2}')
    none = np.zeros(2, np.int64)
    found = bodies.with_unsent(kept, one_run_each(Interval(1, Pace.KEY), none, none))
    assert found == begun(bodies, '{"k":1,"v":2}')


def test_a_merger_is_found_by_its_name() -> None:
    assert registered(MERGER) is by_value


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no.such.module:f", "cannot be imported: ModuleNotFoundError"),
        ("tests.pipeline.merger:nothing", "cannot be imported: AttributeError"),
        ("tests.pipeline.merger:MERGER", "is not a function"),
        (":", "cannot be imported"),
    ],
)
def test_one_that_is_not_there_is_one_sentence(name: str, reason: str) -> None:
    with pytest.raises(DefinitionInvalid, match=f"^merger {name} {reason}") as refused:
        registered(name)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 78
