"""A request decided: its options over the topic's, its command, what it begins with."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.conflation.definition import Definition, History, Kind
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.grant import Request, decide, grant, granted
from tidegate.conflation.options.table import Options
from tidegate.conflation.subscription import Auto, Command, NotFound, Replay, Shown, Subscription
from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter import Filter
from tidegate.keys.order import Order
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.rate import Rate

KEYED = Definition(History(1), KeySpec.parse("[/k]"))
PLAIN = Definition(History(1))
RETAINED = Definition(History(1), retains=True)
TEXT = Definition(History(1), kind=Kind.TEXT)
SECOND = 1_000_000_000
BY_KEY = "conflation_key=[/k],pace=batch"
SUMS = Definition(History(1), KeySpec.parse("[/k]"), merge=Reduce.of({"/q": "sum"}))


def decided(
    text: str = "", definition: Definition = KEYED, command: str | None = None
) -> Subscription:
    return decide("px", definition, Options.parse(text), command=command)


def warned(
    text: str, definition: Definition = KEYED, command: str | None = None, order_text: str = ""
) -> list[str]:
    request = Request("px", definition, Options.parse(text), command=command, order_text=order_text)
    return [warning.partition(":")[0] for warning in grant(request).warnings]


@rule("option-5", "option-7", "option-4")
@pytest.mark.parametrize(
    ("command", "definition", "options", "expected"),
    [
        (None, KEYED, "", "sow_and_subscribe"),
        (None, PLAIN, "", "subscribe"),
        (None, RETAINED, "", "subscribe"),  # rule option-5
        (None, KEYED, "bookmark=epoch", "subscribe"),  # rule option-7
        (None, KEYED, "bookmark=now", "subscribe"),
        ("sow", KEYED, "", "sow"),
        ("sow_and_subscribe", RETAINED, "", "sow_and_subscribe"),
        ("delta_subscribe", KEYED, "", "delta_subscribe"),
        ("delta_subscribe", PLAIN, "", "subscribe"),  # rule option-4
        ("delta_subscribe", RETAINED, "", "delta_subscribe"),
        ("sow_and_delta_subscribe", KEYED, "", "sow_and_delta_subscribe"),
        ("sow_and_delta_subscribe", Definition(History(1), KEYED.key_spec, values_only=True), "",
         "sow_and_subscribe"),
        ("delta_subscribe", TEXT, "", "subscribe"),
    ],
)  # fmt: skip
def test_commands(command: str | None, definition: Definition, options: str, expected: str) -> None:
    subscription = decided(options, definition, command)
    assert subscription.command is Command(expected)
    assert subscription.lane_id.delta == Command(expected).is_delta


@pytest.mark.parametrize(
    ("text", "replay"),
    [
        ("", None),
        ("bookmark=now,rate=2X,rate_max_gap=1s", None),
        ("bookmark=epoch", Replay(None)),
        ("bookmark=epoch,bookmark_not_found=fail", Replay(None, NotFound.FAIL)),
        ("bookmark=e1-7,bookmark_not_found=fail", Replay(Bookmark("e1", 7), NotFound.FAIL)),
        ("bookmark=1970-01-01T00:00:02Z", Replay(2_000)),
        ("bookmark=epoch,rate=1KB", Replay(None, rate=Rate(bytes_per_s=1_000))),
        (
            "bookmark=epoch,rate=2X,rate_max_gap=1s",
            Replay(None, rate=Rate(times=2.0, max_gap_ns=SECOND)),
        ),
    ],
)
def test_what_is_replayed(text: str, replay: Replay | None) -> None:
    assert decided(text).replay == replay


def test_what_the_shell_shows() -> None:
    text = "timestamp,receipt,send_keys,no_sowkey,progress,conflation=auto,max=2s,max_age=3s"
    auto = Auto(SECOND // 20, 2 * SECOND)
    shown = Shown(True, True, True, True, True, 3 * SECOND, auto)
    assert decided(text).shown == shown
    assert decided("conflation=auto,max_age=40s", command="sow").shown == Shown()


def test_what_it_begins_with() -> None:
    subscription = decide(
        "px",
        KEYED,
        Options.parse("batch_size=7,bookmark=epoch,pause"),
        filter_text=" /a  = 1 ",
        order_text="/b DESC",
        resume=Bookmark("e1", 5),
    )
    assert subscription.resume == Bookmark("e1", 5)
    assert (subscription.batch_size, subscription.paused) == (7, True)
    assert subscription.order == Order.parse("/b DESC")
    assert subscription.lane_id.feed.filter == Filter.parse("/a = 1")
    assert decide("px", KEYED, Options(), filter_text=" ", order_text=" ") == decided()


def test_a_filter_and_an_order_have_their_own_places() -> None:
    with pytest.raises(FilterInvalid) as bad_filter:
        decide("px", KEYED, Options(), filter_text="/a = ")
    assert bad_filter.value.position == 5
    with pytest.raises(OptionsInvalid, match=r"^order_by: ") as bad_order:
        decide("px", KEYED, Options(), order_text="/a UP")
    assert bad_order.value.position == 3


@rule("option-4")
def test_text_has_no_fields() -> None:
    with pytest.raises(FilterInvalid) as no_filter:
        decide("px", TEXT, Options(), filter_text="/a = 1")
    assert no_filter.value.position == 0
    with pytest.raises(OptionsInvalid, match="order_by"):
        decide("px", TEXT, Options(), order_text="/a")


@rule("view-1")
@pytest.mark.parametrize("text", ["oof,top_n=3", "oof,projection=[/k],grouping=[/k]"])
def test_a_window_is_on_one_topic(text: str) -> None:
    request = Request("px", KEYED, Options.parse(text), by_pattern=True)
    with pytest.raises(OptionsInvalid, match="not a pattern") as refused:
        grant(request)
    assert refused.value.position == 4


@rule("change-4")
def test_a_running_subscription_is_paused_without_a_bookmark() -> None:
    paused = decide("px", KEYED, Options.parse("pause", is_change=True))
    assert paused.paused
    assert not decide("px", KEYED, Options.parse("resume", is_change=True)).paused


@rule("option-2")
@pytest.mark.parametrize(
    ("topics", "own", "expected", "left_out"),
    [
        ("conflation=1s,pace=key", "", "conflation=1s,conflation_key=[/k],pace=key", []),
        ("conflation=1s,pace=key", "pace=batch", f"conflation=1s,{BY_KEY}", []),
        ("conflation=1s,pace=key", "conflation=2s",
         "conflation=2s,conflation_key=[/k],pace=key", []),
        (
            "conflation=1s,conflation_key=[/x],pace=key,reduce=[/q:sum],max_age=2s",
            "conflation=none",
            "conflation=none,no_defaults",
            ["conflation_key", "pace", "max_age", "reduce"],
        ),
        ("conflation=auto,min=1s", "conflation=2s", f"conflation=2s,{BY_KEY},no_defaults", ["min"]),
        ("conflation=1s,max_age=2s", "conflation=5s",
         f"conflation=5s,{BY_KEY},no_defaults", ["max_age"]),
        ("conflation=1s,edge=leading", "pace=batch",
         f"conflation=1s,{BY_KEY},no_defaults", ["edge"]),
        ("conflation=1s,pace=batch", "edge=leading",
         "conflation=1s,conflation_key=[/k],pace=key,edge=leading", ["pace"]),
        ("oof", "conflation=1s,conflation_key=[/x]",
         "conflation=1s,conflation_key=[/x],pace=batch,no_defaults", ["oof"]),
        ("oof", "bookmark=epoch", "conflation=none,bookmark=epoch,no_defaults", ["oof"]),
        ("no_empties", "", "conflation=none,no_defaults", ["no_empties"]),
        ("select=[-/a]", "projection=[/b],grouping=[/b]",
         "conflation=none,projection=[/b],grouping=[/b],no_defaults", ["select"]),
        ("conflation=1s,oof", "no_defaults", "conflation=none,no_defaults", []),
        ("conflation=1s,pace=key", "no_defaults,conflation=2s,pace=key",
         "conflation=2s,conflation_key=[/k],pace=key", []),
        ("timestamp,batch_size=7", "receipt", "conflation=none,timestamp,receipt,batch_size=7", []),
    ],
)  # fmt: skip
def test_the_request_wins_over_the_topic(
    topics: str, own: str, expected: str, left_out: list[str]
) -> None:
    """A topic's option that has no room beside the request's is left out."""
    request = Request("px", KEYED, Options.parse(own), Options.parse(topics))
    answer = grant(request)
    assert granted(answer.subscription) == expected
    assert [warning.split()[3] for warning in answer.warnings] == left_out


def test_a_topic_s_interval_is_not_taken_away_for_an_age() -> None:
    topics = Options.parse("conflation=5s")
    with pytest.raises(OptionsInvalid) as refused:
        decide("px", KEYED, Options.parse(" max_age=1s"), defaults=topics)
    assert refused.value.position == 1


def test_a_topic_s_bookmark_is_for_those_who_subscribe() -> None:
    topics = Options.parse("bookmark=epoch,rate=2X")
    assert decide("px", KEYED, Options(), defaults=topics).replay is not None
    assert decide("px", KEYED, Options(), defaults=topics, command="sow").replay is None


@rule("option-2")
def test_what_a_topic_s_options_cannot_have_is_left_out() -> None:
    """The conflation key may still be the request's."""
    topics = Options.parse("conflation=1s,oof")
    bare = grant(Request("px", PLAIN, Options(), topics))
    assert granted(bare.subscription) == "conflation=none,no_defaults"
    assert [warning.split()[3] for warning in bare.warnings] == ["oof", "conflation"]
    keyed = decide("px", PLAIN, Options.parse("conflation_key=[/a]"), defaults=topics)
    assert granted(keyed) == "conflation=1s,conflation_key=[/a],pace=batch,no_defaults"


@rule("option-9")
def test_a_change_without_the_topic_s_own_options_keeps_the_earlier_ones() -> None:
    request = Request(
        "px",
        KEYED,
        Options.parse("no_defaults,pause", is_change=True),
        Options.parse("oof,progress"),
        earlier=Options.parse("conflation=1s"),
    )
    assert granted(grant(request).subscription) == f"conflation=1s,{BY_KEY},no_defaults"


def test_a_warning_says_whose_option_is_left_out() -> None:
    request = Request(
        "px",
        KEYED,
        Options.parse("conflation=none", is_change=True),
        Options.parse("max_age=10s"),
        earlier=Options.parse("conflation=1s,pace=key"),
    )
    assert [warning.partition(" is")[0] for warning in grant(request).warnings] == [
        "the earlier pace",
        "the topic's own max_age",
    ]


@rule("topic-1", "option-3")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "conflation=none"),
        ("conflation=1s", "conflation=1s,conflation_key=[/a,/b],pace=batch"),
        ("no_defaults,conflation=1s", "conflation=1s,conflation_key=[/a,/b],pace=batch"),
        ("conflation=1s,conflation_key=[/b,/a]", "conflation=1s,conflation_key=[/a,/b],pace=batch"),
        ("conflation=1s,conflation_key=[/c]", "conflation=1s,conflation_key=[/c],pace=batch"),
    ],
)
def test_the_key_of_a_topic_without_records_is_what_intervals_conflate_by(
    text: str, expected: str
) -> None:
    """It is no option of the topic: nothing leaves it out, and no warning speaks of it."""
    definition = Definition(History(1), unkept_key=KeySpec.parse("[/a,/b]"))
    answer = grant(Request("px", definition, Options.parse(text)))
    assert (granted(answer.subscription), answer.warnings) == (expected, ())


@rule("merge-8")
def test_a_reducer_may_not_write_to_the_key_of_a_topic_without_records() -> None:
    definition = Definition(History(1), unkept_key=KeySpec.parse("[/q]"))
    with pytest.raises(OptionsInvalid, match="may not write to a field of the key"):
        decided("conflation=1s,reduce=[/q:sum]", definition)


NO_DELTAS = "this topic has no deltas, so delta_subscribe is answered as subscribe"
ONE_SHOT = [
    "a sow is one snapshot, so nothing of it is conflated",
    "a sow is one snapshot, so no removal follows it",
]
LIVE = "a message is delivered once it is stored, so live changes nothing"
FROM_NOW = [
    f"from now on there is nothing to replay, so {name} changes nothing"
    for name in ("bookmark_not_found", "rate")
]
NO_SNAPSHOT = "order_by is for the rows of a snapshot, and this command begins without one"


@rule("option-4", "option-5", "option-7", "view-7")
@pytest.mark.parametrize(
    ("text", "definition", "command", "order_text", "warnings"),
    [
        ("conflation=1s,oof", KEYED, None, "/a", []),
        ("", PLAIN, "delta_subscribe", "", [NO_DELTAS]),
        ("conflation=1s,oof", KEYED, "sow", "", ONE_SHOT),
        ("live", KEYED, None, "", [LIVE]),
        ("bookmark=now,rate=2X,bookmark_not_found=fail", KEYED, None, "", FROM_NOW),
        ("", KEYED, "subscribe", "/a", [NO_SNAPSHOT]),
    ],
)
def test_an_option_without_effect_gives_a_warning(
    text: str, definition: Definition, command: str | None, order_text: str, warnings: list[str]
) -> None:
    assert warned(text, definition, command, order_text) == warnings


@rule("merge-8")
def test_the_topic_s_merge_may_not_write_to_the_conflation_key() -> None:
    """A row of the key 1 would have the sum of all its ones in that field."""
    with pytest.raises(OptionsInvalid, match="give reduce, too") as raised:
        decided("conflation=1s,conflation_key=[/q]", SUMS)
    assert raised.value.position == 14
    for text in ("conflation=1s", "conflation=1s,conflation_key=[/x]"):
        assert "reduce=[/q:sum]" in granted(decided(text, SUMS))
    own = decided("conflation=1s,conflation_key=[/q],reduce=[/q:last]", SUMS)
    assert "reduce=[/q:last]" in granted(own)
    groups = "conflation=1s,conflation_key=[/q],projection=[SUM(/x) AS /s],grouping=[/q]"
    assert "projection=" in granted(decided(groups, SUMS))
