"""A request decided: options, the topic's key and the defaults put together."""

from __future__ import annotations

import pytest

from conflation.errors import OptionsInvalid
from conflation.options import Options
from conflation.subscription import Command, LaneId, decide
from keys.spec import KeySpec

KEY = KeySpec.parse("[/k]")
SECOND = 1_000_000_000


def lane_of(options: str, sow_spec: KeySpec = KEY, default_pace: str = "batch") -> LaneId:
    return decide("px", sow_spec, Options.parse(options), default_pace=default_pace).lane_id


def test_an_interval_conflates_by_the_key_of_the_topic() -> None:
    assert lane_of("conflation=1s") == LaneId(SECOND, KEY, "batch")


def test_the_request_wins_over_the_default_pace() -> None:
    assert lane_of("conflation=1s", default_pace="key").pace == "key"
    assert lane_of("conflation=1s,pace=batch", default_pace="key").pace == "batch"


def test_nothing_asked_for_is_every_message() -> None:
    assert lane_of("", default_pace="key") == lane_of("conflation=none") == LaneId(0, KEY, "batch")


def test_equal_wishes_in_other_words_share_a_lane() -> None:
    assert lane_of("conflation=1s") == lane_of("conflation=1000ms,conflation_key=[$.k],pace=batch")


@pytest.mark.parametrize(
    ("options", "key", "position"),
    [
        ("conflation=1s", "", 0),
        ("  conflation=1s", "", 2),
        ("conflation=none,pace=key", "[/k]", 16),
        ("conflation=none,conflation_key=[/k]", "[/k]", 16),
        ("pace=batch", "[/k]", 0),
        (" conflation_key=[/a]", "[/k]", 1),
    ],
)
def test_options_in_conflict_are_refused_with_their_place(
    options: str, key: str, position: int
) -> None:
    spec = KeySpec.parse(key) if key else KeySpec()
    with pytest.raises(OptionsInvalid) as refused:
        decide("px", spec, Options.parse(options))
    assert refused.value.position == position


@pytest.mark.parametrize(
    ("command", "spec", "expected"),
    [
        (None, KEY, Command.SOW_AND_SUBSCRIBE),
        (None, KeySpec(), Command.SUBSCRIBE),
        ("subscribe", KEY, Command.SUBSCRIBE),
        ("sow", KEY, Command.SOW),
    ],
)
def test_commands(command: str | None, spec: KeySpec, expected: Command) -> None:
    assert decide("px", spec, Options(), command=command).command is expected


@pytest.mark.parametrize(
    ("command", "spec"),
    [
        ("sow", KeySpec()),
        ("sow_and_subscribe", KeySpec()),
        ("delta_subscribe", KEY),
        ("sow_and_delta_subscribe", KEY),
        ("SOW", KEY),
        ("", KEY),
        ("publish", KEY),
    ],
)
def test_commands_that_are_not_served_are_refused(command: str, spec: KeySpec) -> None:
    with pytest.raises(OptionsInvalid):
        decide("px", spec, Options(), command=command)


def test_a_lane_is_told_as_the_options_that_ask_for_it() -> None:
    assert str(lane_of("conflation=1500ms")) == ("conflation=1500ms,conflation_key=[/k],pace=batch")
    assert str(lane_of("")) == "conflation=none"
