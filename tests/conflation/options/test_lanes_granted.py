"""Which lane a request belongs to: equal wishes share (rule option-8), different ones do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.rules import rule
from tidegate.conflation.definition import Definition, History, Kind
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.subscription import FeedId, LaneId, Window
from tidegate.keys.filter import Filter
from tidegate.keys.merging import Matcher, Merger
from tidegate.keys.order import Order
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

pytestmark = rule("option-8")


KEY = KeySpec.parse("[/a,/b]")
KEYED = Definition(History(1), KEY)
SECOND = 1_000_000_000
SUMS = Reduce.parse("[/q:sum]")


def lane_of(
    text: str,
    *,
    definition: Definition = KEYED,
    command: str | None = None,
    filter_text: str = "",
    order_text: str = "",
    default_pace: str = "batch",
    counted: bool = False,
) -> LaneId:
    return decide(
        "px",
        definition,
        Options.parse(text),
        command=command,
        filter_text=filter_text,
        order_text=order_text,
        default_pace=default_pace,
        counted=counted,
    ).lane_id


EVERY_MESSAGE = LaneId(FeedId(KEY))
EVERY_SECOND = LaneId(FeedId(KEY), SECOND)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "conflation=none",
        "timestamp",
        "receipt",
        "send_keys,no_sowkey,progress",
        "select=[+/a]",
        "batch_size=5",
        "non_regex_topic",
        "no_defaults",
        "live",
    ],
)
def test_who_gets_every_message_shares(text: str) -> None:
    assert lane_of(text, default_pace="key", counted=True) == EVERY_MESSAGE


@pytest.mark.parametrize(
    "text",
    [
        "conflation=1s",
        "conflation=1000ms,pace=batch,edge=trailing",
        "conflation=1s,conflation_key=[/a,/b]",
        "conflation=1s,conflation_key=[$.b,$.a]",
        "conflation=1s,max_age=2s,batch_size=7,progress",
        "conflation=1s,reduce=[/q:last]",
        "conflation=1s,select=[+/a]",
    ],
)
def test_who_gets_the_same_every_second_shares(text: str) -> None:
    assert lane_of(text) == EVERY_SECOND


def test_each_wish_that_matters_has_its_lane() -> None:
    wishes = [
        "",
        "conflation=1s",
        "conflation=2s",
        "conflation=1s,pace=key",
        "conflation=1s,edge=leading",
        "conflation=1s,conflation_key=[/a]",
        "conflation=1s,oof",
        "conflation=1s,receipt",
        "conflation=1s,select=[-/x]",
        "conflation=1s,reduce=[/q:sum]",
        "conflation=1s,never=[/a = 1]",
        "conflation=1s,flush_on=[/a = 1]",
        "conflation=1s,top_n=3",
        "conflation=1s,top_n=3,skip_n=3",
        "conflation=1s,projection=[SUM(/q) AS /t],grouping=[/a]",
    ]
    lanes = [lane_of(text) for text in wishes]
    delta = "delta_subscribe"
    lanes += [lane_of("conflation=1s", command=delta), lane_of("conflation=1s", filter_text="/a=1")]
    lanes += [lane_of("conflation=1s,no_empties", command=delta)]
    assert len(set(lanes)) == len(lanes)


@pytest.mark.parametrize(
    ("text", "counted"), [("receipt", False), ("timestamp", False), ("", True)]
)
def test_rows_are_counted_where_that_is_shown(text: str, counted: bool) -> None:
    assert lane_of(f"conflation=1s,{text}", counted=counted) == replace(EVERY_SECOND, counted=True)


@rule("option-6")
def test_auto_begins_with_its_shortest_step_and_shares_it() -> None:
    assert lane_of("conflation=auto,min=600ms,max=2s,max_age=3s") == EVERY_SECOND


def test_a_leading_edge_is_each_key_s_own() -> None:
    lane = replace(EVERY_SECOND, pace="key", leading=True)
    assert lane_of("conflation=1s,edge=leading") == lane


def test_the_default_pace_counts_only_with_an_interval() -> None:
    assert lane_of("conflation=1s", default_pace="key").pace == "key"
    assert lane_of("conflation=1s,pace=batch", default_pace="key").pace == "batch"


@rule("option-5")
def test_a_sow_is_one_shot() -> None:
    text = "conflation=1s,conflation_key=[/a,/b],oof,receipt,max_age=2s"
    assert lane_of(text, command="sow") == EVERY_MESSAGE


@rule("view-1")
def test_a_window_has_its_order_and_sends_removals() -> None:
    order = Order.parse("/a DESC")
    window = FeedId(KEY, Filter.parse("/a > 1"), Window(order, 3, 2))
    lane = lane_of("top_n=3,skip_n=2", filter_text="/a > 1", order_text="/a DESC")
    assert lane == LaneId(window, oof=True)
    assert not lane_of("top_n=3", command="sow").oof


def test_a_group_is_known_by_its_grouping() -> None:
    lane = lane_of("conflation=1s,projection=[SUM(/q) AS /t],grouping=[/b]")
    assert lane.feed.key_spec == KeySpec.parse("[/b]")


MERGER = Merger("shop:merge", lambda current, new: new)
MATCHER = Matcher("shop:match", lambda current, new: True)


@rule("merge-8")
@pytest.mark.parametrize(
    ("merge", "text", "expected"),
    [
        (SUMS, "conflation=1s", SUMS),
        (MERGER, "conflation=1s", MERGER),
        (Reduce.parse("[/q:last]"), "conflation=1s", None),
        (SUMS, "conflation=1s,reduce=[/q:max]", Reduce.parse("[/q:max]")),
        (SUMS, "conflation=1s,reduce=[/q:last]", Reduce.parse("[/q:last]")),
        (MERGER, "conflation=1s,reduce=[/q:max]", Reduce.parse("[/q:max]")),
        (SUMS, "", None),
        (SUMS, "conflation=1s,top_n=3", None),
        (SUMS, "conflation=1s,projection=[SUM(/q) AS /t],grouping=[/a]", None),
    ],
)
def test_the_request_s_reducers_win_over_the_topic_s(
    merge: Reduce | Merger, text: str, expected: Reduce | Merger | None
) -> None:
    """Reducers are for messages on their way, not for windows and groups."""
    assert lane_of(text, definition=replace(KEYED, merge=merge)).merge == expected


@pytest.mark.parametrize(
    ("match", "text", "expected"),
    [
        (KeySpec.parse("[/a]"), "conflation=1s", None),
        (KeySpec.parse("[/c]"), "conflation=1s", KeySpec.parse("[/c]")),
        (KeySpec.parse("[/b]"), "conflation=1s,conflation_key=[/a]", KeySpec.parse("[/b]")),
        (MATCHER, "conflation=1s", MATCHER),
        (MATCHER, "", None),
        (MATCHER, "conflation=1s,top_n=3", None),
    ],
)
def test_the_topic_says_what_may_conflate(
    match: KeySpec | Matcher, text: str, expected: KeySpec | Matcher | None
) -> None:
    assert lane_of(text, definition=replace(KEYED, match=match)).match == expected


def test_placement_counts_only_where_something_is_held() -> None:
    placed = replace(KEYED, replaces=True)
    assert lane_of("conflation=1s", definition=placed).replaces
    assert not lane_of("", definition=placed).replaces
    assert not lane_of("conflation=1s,top_n=1", definition=placed).replaces


@rule("option-4")
def test_an_interval_on_text_is_one_for_the_topic() -> None:
    text = Definition(History(1), kind=Kind.TEXT)
    assert lane_of("conflation=1s", definition=text) == LaneId(FeedId(KeySpec()), SECOND)
