"""The printed forms ask for exactly what was granted (rule option-8), or asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.conflation.definition import Definition, History, Kind
from tidegate.conflation.errors import EngineError, OptionsInvalid
from tidegate.conflation.options.grant import decide, granted, lane_text
from tidegate.conflation.options.table import FLAGS, TABLE, Options
from tidegate.conflation.subscription import Subscription
from tidegate.keys.merging import Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

pytestmark = rule("option-8")


KEY = KeySpec.parse("[/a,/b]")
TOPICS = (
    Definition(History(1), KEY),
    Definition(History(1), KEY, merge=Reduce.parse("[/q:sum]"), replaces=True),
    Definition(History(1), KEY, merge=Merger("shop:merge", max), match=KeySpec.parse("[/c]")),
    Definition(History(1)),
    Definition(History(1), unkept_key=KEY),
    Definition(History(1), retains=True),
    Definition(History(1), kind=Kind.TEXT),
)
INTERVALS = st.integers(1_000_000, 86_400_000_000_000).map("{}ns".format)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
PATHS = NAMES.filter(lambda name: name != "*").map(
    lambda name: "$['" + name.replace("\\", "\\\\").replace("'", "\\'") + "']"
)
FILTERS = st.builds("{} = 'x,]{}'".format, PATHS, st.sampled_from(["", "y", "[", "("]))
VALUES = {
    "conflation": INTERVALS | st.sampled_from(["auto", "none", "1s"]),
    "conflation_key": st.sampled_from(["[/a,/b]", "[/b,/a]", "[/c]"])
    | st.lists(PATHS, min_size=1, max_size=2, unique=True).map(lambda some: f"[{','.join(some)}]"),
    "pace": st.sampled_from(["batch", "key"]),
    "edge": st.sampled_from(["trailing", "leading"]),
    "min": st.sampled_from(["1ms", "60ms", "2s"]),
    "max": st.sampled_from(["3s", "30s", "1d"]),
    "max_age": st.sampled_from(["1m", "700ms", "1d"]),
    "never": FILTERS.map("[{}]".format),
    "flush_on": FILTERS.map("[{}]".format),
    "select": st.sampled_from(["[-/,+/a]", "[+/a]", "[-/a/b,+/a/b/c]"]),
    "top_n": st.integers(1, 10_000).map(str),
    "skip_n": st.integers(0, 1_000_000).map(str),
    "batch_size": st.integers(1, 10_000).map(str),
    "bookmark": st.sampled_from(["epoch", "now", "e1-7", "20250909T171919.976304Z"]),
    "bookmark_not_found": st.sampled_from(["epoch", "now", "fail"]),
    "rate": st.sampled_from(["1000", "1500KB", ".5X", "2x"]),
    "rate_max_gap": INTERVALS,
    "reduce": st.sampled_from(["[/q:sum]", "[/q:last]", "[/q:max@hi,/p:avg]"]),
}
PROJECTION = "projection=[SUM(/q) AS /t, /a],grouping=[/a]"
COMMANDS = (None, "subscribe", "sow", "sow_and_subscribe", "delta_subscribe")


@st.composite
def option_texts(draw: st.DrawFn) -> str:
    """Options that often stand together, so that many requests are granted."""
    often = st.sampled_from(
        ["", "", "conflation=1s", "conflation=auto", "bookmark=e1-7", PROJECTION]
    )
    parts = [part for part in [draw(often)] if part]
    taken = {part.partition("=")[0] for text in parts for part in text.split(",")}
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=3, unique=True))
    parts += [f"{name}={draw(VALUES[name])}" for name in names if name not in taken]
    flags = sorted(name for name in FLAGS if not TABLE[name].only_in_change)
    return ",".join([*parts, *draw(st.lists(st.sampled_from(flags), max_size=2, unique=True))])


@examples(100)
@given(
    st.sampled_from(TOPICS),
    option_texts(),
    st.sampled_from(COMMANDS),
    st.sampled_from(["", "/a = 'x'"]),
    st.sampled_from(["", "/a DESC"]),
    st.booleans(),
)
def test_asking_for_what_was_granted_gives_the_same(
    definition: Definition,
    text: str,
    command: str | None,
    filter_text: str,
    order_text: str,
    counted: bool,
) -> None:
    def decided(text: str, command: str | None) -> Subscription:
        return decide(
            "px",
            definition,
            Options.parse(text),
            command=command,
            filter_text=filter_text,
            order_text=order_text,
            counted=counted,
        )

    try:
        first = decided(text, command)
    except (EngineError, ValueError):
        return
    normal = granted(first)
    assert decided(normal, str(first.command)) == first
    assert granted(decided(normal, str(first.command))) == normal


def again(first: Subscription, definition: Definition, defaults: Options) -> Subscription:
    """What is granted to those who ask for what was granted."""
    asked = Options.parse(granted(first))
    return decide("px", definition, asked, defaults=defaults, command=str(first.command))


@rule("option-9")
@examples(150)
@given(
    st.sampled_from(TOPICS),
    option_texts(),
    option_texts().filter(lambda text: "no_defaults" not in text),  # refused in a definition
    st.sampled_from(COMMANDS),
)
def test_the_topic_s_own_options_add_nothing_to_what_was_granted(
    definition: Definition, text: str, topics: str, command: str | None
) -> None:
    try:
        defaults = Options.parse(topics)
        first = decide("px", definition, Options.parse(text), defaults=defaults, command=command)
    except (EngineError, ValueError):
        return
    assert again(first, definition, defaults) == first
    # A change may pause any subscription, also those that cannot begin paused.
    other = replace(first, paused=not first.paused)
    assert replace(again(other, definition, defaults), paused=other.paused) == other


@rule("option-9")
@pytest.mark.parametrize(
    ("topics", "own", "expected"),
    [
        (
            "conflation=700ms,oof,pace=key",
            "bookmark=now",
            "conflation=700ms,conflation_key=[/a,/b],pace=key,no_defaults",
        ),
        (
            "conflation=700ms,oof,pace=key",
            "",
            "conflation=700ms,conflation_key=[/a,/b],pace=key,oof",
        ),
        ("bookmark=epoch", "bookmark=now", "conflation=none,no_defaults"),
        ("bookmark=now,pause", "", "conflation=none,bookmark=now,pause"),
    ],
)
def test_what_was_left_out_of_the_topic_s_own_does_not_come_back(
    topics: str, own: str, expected: str
) -> None:
    defaults = Options.parse(topics)
    first = decide("px", TOPICS[0], Options.parse(own), defaults=defaults)
    assert granted(first) == expected
    assert again(first, TOPICS[0], defaults) == first


@rule("option-9")
def test_what_is_left_out_may_change_while_the_subscription_runs() -> None:
    defaults = Options.parse("bookmark=now,pause")
    resumed = replace(decide("px", TOPICS[0], Options(), defaults=defaults), paused=False)
    assert granted(resumed) == "conflation=none,no_defaults"
    assert again(resumed, TOPICS[0], defaults) == resumed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "conflation=none"),
        (
            "conflation=auto,max_age=1m,timestamp,progress,batch_size=3",
            "conflation=50ms,conflation_key=[/a,/b],pace=batch,receipt",
        ),
        (
            "conflation=1s,edge=leading,oof,reduce=[/q:sum]",
            "conflation=1s,conflation_key=[/a,/b],pace=key,edge=leading,oof,reduce=[/q:sum]",
        ),
    ],
)
def test_a_lane_text_has_the_options_that_members_share(text: str, expected: str) -> None:
    assert lane_text(decide("px", TOPICS[0], Options.parse(text)).lane_id) == expected


def test_a_lane_text_has_filter_order_and_command() -> None:
    window = decide(
        "px",
        TOPICS[0],
        Options.parse("top_n=3"),
        command="sow_and_delta_subscribe",
        filter_text="/a=1",
        order_text="/b desc",
    )
    assert lane_text(window.lane_id) == (
        "conflation=none,oof,top_n=3&command=delta_subscribe&filter=/a = 1&order_by=/b DESC"
    )


def test_a_topic_s_merger_has_no_option() -> None:
    subscription = decide("px", TOPICS[2], Options.parse("conflation=1s"))
    assert "reduce" not in granted(subscription)


# What was asked for, as text.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" oof, conflation = 1000ms ,", "conflation=1s,oof"),
        ("pause,conflation=none", "conflation=none,pause"),
        ("never=[/a='x,y'],skip_n=0,top_n=5", "never=[/a = 'x,y'],top_n=5,skip_n=0"),
        ("rate=2x,rate_max_gap=60s,bookmark=e1-7", "bookmark=e1-7,rate=2X,rate_max_gap=1m"),
    ],
)
def test_options_are_spelled_in_one_way(text: str, expected: str) -> None:
    assert Options.parse(text).text() == expected


@examples(75)
@given(option_texts())
def test_what_is_spelled_says_the_same(text: str) -> None:
    try:
        options = Options.parse(text)
    except OptionsInvalid:
        return
    assert Options.parse(options.text()) == options


@examples(30)
@given(option_texts(), option_texts(), st.sampled_from(["", "replace", "resume"]))
def test_so_do_options_laid_over_others(text: str, later: str, act: str) -> None:
    try:
        before = Options.parse(text)
        after = Options.parse(",".join(filter(None, (later, act))), is_change=True)
    except OptionsInvalid:
        return
    both = after.over(before)
    assert Options.parse(both.text(), is_change=True) == both
