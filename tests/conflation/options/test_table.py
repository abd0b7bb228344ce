"""Every option of the contract's table and of AMPS, as a table: what is asked, what is decided.

A decision is told in its normalised form, a refusal as its position and a part of its detail.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tidegate.conflation.definition import Definition, History, Kind
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.grant import decide, granted
from tidegate.conflation.options.table import TABLE, Options
from tidegate.keys.spec import KeySpec

KEY = KeySpec.parse("[/k]")
HISTORY = History(1_000)
TOPICS = {
    "keyed": Definition(HISTORY, KEY),
    "two-keyed": Definition(HISTORY, KeySpec.parse("[/a,/b]")),
    "plain": Definition(HISTORY),
    "retained": Definition(HISTORY, retains=True),
    "series": Definition(HISTORY, kind=Kind.SERIES),
    "text": Definition(HISTORY, kind=Kind.TEXT),
    "values-only": Definition(HISTORY, KEY, values_only=True),
}
BY_KEY = "conflation_key=[/k],pace=batch"


class Row(NamedTuple):
    """A line of the table: options, the normalised form, and what else is asked for."""

    options: str
    granted: str
    topic: str = "keyed"
    command: str | None = None


class No(NamedTuple):
    """A line of what is refused: options, position, a part of the detail."""

    options: str
    position: int | None
    detail: str
    topic: str = "keyed"
    command: str | None = None


DELTA = "sow_and_delta_subscribe"

GRANTED = [
    # AMPS 1.1, CONTRACT 5: conflation, conflation_key
    Row("", "conflation=none"),
    Row("conflation=none", "conflation=none"),
    Row("conflation=10s", f"conflation=10s,{BY_KEY}"),
    Row("conflation=1d", f"conflation=1d,{BY_KEY}"),
    Row("conflation=1ms", f"conflation=1ms,{BY_KEY}"),
    Row("conflation=10s,conflation_key=[/k]", f"conflation=10s,{BY_KEY}"),
    Row(
        "conflation=10s,conflation_key=[/orderId]",
        "conflation=10s,conflation_key=[/orderId],pace=batch",
    ),
    Row(
        "conflation=250ms,conflation_key=[/id]",
        "conflation=250ms,conflation_key=[/id],pace=batch",
        "plain",
    ),
    Row("conflation=1m,conflation_key=[/0/id]", "conflation=1m,conflation_key=[/0/id],pace=batch"),
    Row(
        "conflation=2s, conflation_key = [/tickerId]",
        "conflation=2s,conflation_key=[/tickerId],pace=batch",
    ),
    Row("oof,conflation=5s,", f"conflation=5s,{BY_KEY},oof"),
    Row("\tconflation\t=\t5s\t,\t", f"conflation=5s,{BY_KEY}"),
    Row(
        "conflation=1s,conflation_key=[/b,/a]",  # rule option-3
        "conflation=1s,conflation_key=[/a,/b],pace=batch",
        "two-keyed",
    ),
    Row(
        "conflation=1s,conflation_key=[/b]",
        "conflation=1s,conflation_key=[/b],pace=batch",
        "two-keyed",
    ),
    Row("conflation=1s", "conflation=1s,pace=batch", "text"),  # rule option-4
    Row("conflation=none", "conflation=none", "series"),
    # AMPS 1.2: time specifiers, units in any case
    Row("conflation=1000000NS", f"conflation=1ms,{BY_KEY}"),
    Row("conflation=250000us", f"conflation=250ms,{BY_KEY}"),
    Row("conflation=1000Ms", f"conflation=1s,{BY_KEY}"),
    Row("conflation=1M", f"conflation=1m,{BY_KEY}"),
    Row("conflation=24H", f"conflation=1d,{BY_KEY}"),
    Row("conflation=86400s", f"conflation=1d,{BY_KEY}"),
    # pace, edge
    Row("conflation=1s,pace=key", "conflation=1s,conflation_key=[/k],pace=key"),
    Row("conflation=1s,edge=trailing", f"conflation=1s,{BY_KEY}"),
    Row("conflation=1s,edge=leading", "conflation=1s,conflation_key=[/k],pace=key,edge=leading"),
    Row(
        "conflation=1s,edge=leading,pace=key",
        "conflation=1s,conflation_key=[/k],pace=key,edge=leading",
    ),
    # auto, min, max, max_age: rule option-6
    Row("conflation=auto", f"conflation=auto,{BY_KEY},min=50ms,max=30s"),
    Row("conflation=auto,min=60ms,max=4s", f"conflation=auto,{BY_KEY},min=100ms,max=2s"),
    Row("conflation=auto,max_age=6s", f"conflation=auto,{BY_KEY},min=50ms,max=5s,max_age=6s"),
    Row(
        "conflation=auto,max=1s,max_age=1s", f"conflation=auto,{BY_KEY},min=50ms,max=1s,max_age=1s"
    ),
    Row("conflation=1s,max_age=1s", f"conflation=1s,{BY_KEY},max_age=1s"),
    # never, flush_on
    Row("conflation=1s,never=[/a = 'x,y]']", f"conflation=1s,{BY_KEY},never=[/a = 'x,y]']"),
    Row("conflation=1s,never=[[/a,b] > 1]", f"conflation=1s,{BY_KEY},never=[$['a,b'] > 1]"),
    Row("conflation=1s,flush_on=[/a IN (1,2)]", f"conflation=1s,{BY_KEY},flush_on=[/a IN (1, 2)]"),
    # flags
    Row("timestamp", "conflation=none,timestamp"),
    Row("receipt", "conflation=none,receipt"),
    Row("oof", "conflation=none,oof"),
    Row("send_keys,no_sowkey,progress", "conflation=none,send_keys,no_sowkey,progress"),
    Row("no_empties", "conflation=none,no_empties", command=DELTA),
    Row("no_empties,conflation=1s", f"conflation=1s,{BY_KEY},no_empties", command=DELTA),
    Row("non_regex_topic", "conflation=none"),
    Row("no_defaults", "conflation=none"),
    Row("live", "conflation=none"),
    Row("bookmark=epoch,live", "conflation=none,bookmark=epoch"),
    # select
    Row("select=[-/,+/a]", "conflation=none,select=[-/,+/a]"),
    Row("select=[+/]", "conflation=none"),
    Row("select=[-/,+/a]", "conflation=none,select=[-/,+/a]", command=DELTA),
    # projection, grouping
    Row(
        "conflation=1s,grouping=[/a],projection=[/a,SUM(/q) AS /t]",
        "conflation=1s,conflation_key=[/a],pace=batch,projection=[/a,SUM(/q) AS /t],grouping=[/a]",
    ),
    Row(
        "conflation=1s,conflation_key=[/a],grouping=[/a],projection=[COUNT(/k) AS /n]",
        "conflation=1s,conflation_key=[/a],pace=batch,projection=[COUNT(/k) AS /n],grouping=[/a]",
    ),
    # top_n, skip_n: rule view-1
    Row(
        "oof,conflation=3000ms,top_n=20,skip_n=0",
        f"conflation=3s,{BY_KEY},oof,top_n=20",
    ),
    Row("top_n=10000,skip_n=1000000", "conflation=none,oof,top_n=10000,skip_n=1000000"),
    Row("top_n=5", "conflation=none,top_n=5", command="sow"),
    # batch_size
    Row("batch_size=1", "conflation=none,batch_size=1"),
    Row("batch_size=100", "conflation=none"),
    Row("batch_size=10000", "conflation=none,batch_size=10000"),
    # bookmark, bookmark_not_found: rule option-7
    Row("bookmark=epoch", "conflation=none,bookmark=epoch"),
    Row("bookmark=now", "conflation=none"),
    Row("bookmark=now,pause", "conflation=none,bookmark=now,pause"),
    Row("bookmark=e1-42", "conflation=none,bookmark=e1-42"),
    Row("bookmark=e1-42,bookmark_not_found=now", "conflation=none,bookmark=e1-42"),
    Row(
        "bookmark=e1-42,bookmark_not_found=epoch",
        "conflation=none,bookmark=e1-42,bookmark_not_found=epoch",
    ),
    Row(
        "bookmark=e1-42,bookmark_not_found=fail",
        "conflation=none,bookmark=e1-42,bookmark_not_found=fail",
    ),
    Row(
        "bookmark=epoch,bookmark_not_found=fail",
        "conflation=none,bookmark=epoch,bookmark_not_found=fail",
    ),
    Row(
        "bookmark=2025-09-09T19:19Z,bookmark_not_found=epoch",
        "conflation=none,bookmark=2025-09-09T19:19:00Z",
    ),
    Row(
        "bookmark=2025-09-09T19:19Z,bookmark_not_found=fail",
        "conflation=none,bookmark=2025-09-09T19:19:00Z,bookmark_not_found=fail",
    ),
    Row(
        "bookmark=20250909T171919.976304Z",
        "conflation=none,bookmark=2025-09-09T17:19:19.977Z",
    ),
    Row(
        "bookmark=2025-09-09T17:19:19+02:00",
        "conflation=none,bookmark=2025-09-09T15:19:19Z",
    ),
    Row(
        "conflation=1s,conflation_key=[/s],bookmark=epoch",
        "conflation=1s,conflation_key=[/s],pace=batch,bookmark=epoch",
        "plain",
    ),
    # rate, rate_max_gap, pause: rule option-7
    Row("bookmark=epoch,rate=1000", "conflation=none,bookmark=epoch,rate=1000"),
    Row("bookmark=epoch,rate=500kb", "conflation=none,bookmark=epoch,rate=500KB"),
    Row("bookmark=epoch,rate=2X", "conflation=none,bookmark=epoch,rate=2X"),
    Row("bookmark=epoch,rate=.5x", "conflation=none,bookmark=epoch,rate=0.5X"),
    Row(
        "bookmark=epoch,rate=2X,rate_max_gap=1s",
        "conflation=none,bookmark=epoch,rate=2X,rate_max_gap=1s",
    ),
    Row("bookmark=epoch,pause", "conflation=none,bookmark=epoch,pause"),
    # reduce
    Row(
        "conflation=1s,reduce=[/px:last,/px:max@hi,/qty:sum]",
        f"conflation=1s,{BY_KEY},reduce=[/px:last,/px:max@hi,/qty:sum]",
    ),
    Row("conflation=1s,reduce=[/px:last]", f"conflation=1s,{BY_KEY}"),
    Row(
        "conflation=1s,reduce=[/qty:sum]",  # rule merge-8
        f"conflation=1s,{BY_KEY},reduce=[/qty:sum]",
        command=DELTA,
    ),
    # commands
    Row("conflation=1s,oof", "conflation=none", command="sow"),  # rule option-5
    Row("conflation=1s", f"conflation=1s,{BY_KEY}", command="delta_subscribe"),
    Row(
        "conflation=1s,no_empties", f"conflation=1s,{BY_KEY}", "values-only", DELTA
    ),  # rule option-4
    Row("no_empties", "conflation=none", "plain", "delta_subscribe"),
    Row("", "conflation=none", "retained", "sow"),
]

REFUSED = [
    # the language
    No(",", 0, "name of an option"),
    No(",conflation=1s", 0, "name of an option"),
    No("conflation=1s,,", 14, "name of an option"),
    No("=1s", 0, "name of an option"),
    No("500ms", 0, "such as conflation=500ms"),
    No("Conflation=1s", 0, "lower-case"),
    No("conflation\u00a0=1s", 0, "name of an option"),
    No("conflation=1s, speed=9", 15, "unknown option speed"),
    No("conflation=1s,conflaton_key=[/k]", 14, "the nearest known one is conflation_key"),
    No("Top_n=3", 0, "lower-case"),
    No("conflation=1s,conflation=2s", 14, "given twice"),
    No("oof,oof", 4, "given twice"),
    No("oof=true", 4, "takes no value"),
    No("oof=", 4, "takes no value"),
    No("select=[/a,oof", 7, "bracket is not closed"),
    No("never=[/a = 'x],oof", 12, "string is not closed"),
    No("resume", 0, "running subscription"),
    No("oof,replace", 4, "running subscription"),
    # conflation and durations (AMPS 1.2)
    No("conflation", 10, "expected = and a value"),
    No("conflation=", 11, "an integer and a unit"),
    No("conflation=fast", 11, "or auto, or none"),
    No("conflation=NONE", 11, "or auto, or none"),
    No("conflation=1s=2s", 11, "an integer and a unit"),
    No("conflation=1.5s", 11, "an integer and a unit"),
    No("conflation=1m30s", 11, "an integer and a unit"),
    No("conflation=-1s", 11, "an integer and a unit"),
    No("conflation=1000", 11, "an integer and a unit"),
    No("conflation=1k", 11, "an integer and a unit"),
    No("conflation=\u0661s", 11, "an integer and a unit"),
    No("conflation=0s", 11, "from 1ms to 1d"),
    No("conflation=999us", 11, "from 1ms to 1d"),
    No("conflation=25h", 11, "from 1ms to 1d"),
    No("conflation=1w", 11, "from 1ms to 1d"),
    No("conflation=1s", 0, "never conflated", "series"),
    No(" conflation=auto", 1, "never conflated", "series"),
    No(" conflation=1s", 1, "needs conflation_key", "plain"),
    No("conflation=1s", 0, "needs conflation_key", "retained"),
    # conflation_key
    No("conflation=1s,conflation_key=/a", 29, "conflation_key: expected field paths"),
    No("conflation=1s,conflation_key=[]", 30, "conflation_key: "),
    No("conflation=1s,conflation_key=[/a,]", 33, "conflation_key: "),
    No("conflation=1s,conflation_key=[/a,  /b//c]", 37, "conflation_key: "),
    No("conflation=1s,conflation_key=[/a,$.a]", 33, "twice"),
    No(" conflation_key=[/a]", 1, "needs a conflation interval"),
    No("conflation=none,conflation_key=[/k]", 16, "needs a conflation interval"),
    No("conflation=1s,oof,conflation_key=[/x]", 18, "with oof"),
    No("conflation=1s,conflation_key=[/k,/x],oof", 14, "with oof"),
    No("conflation=1s,conflation_key=[/x]", 14, "needs messages with fields", "text"),
    # pace, edge
    No("pace=batch", 0, "needs a conflation interval"),
    No("conflation=1s,pace=slow", 19, "expected batch or key"),
    No("conflation=1s,pace", 18, "expected = and a value"),
    No("edge=leading", 0, "needs a conflation interval"),
    No("conflation=1s,edge=both", 19, "expected trailing or leading"),
    No("conflation=1s,pace=batch,edge=leading", 25, "pace=batch"),
    # auto, min, max, max_age
    No("conflation=1s,min=1s", 14, "bound of conflation=auto"),
    No("max=1s", 0, "bound of conflation=auto"),
    No("conflation=auto,min=2s,max=1s", 16, "min is above max"),
    No("conflation=auto,max=400ms,min=300ms", 16, "no step of auto"),
    No("conflation=auto,min=31s", 16, "no step of auto"),
    No("conflation=auto,max=49ms", 16, "no step of auto"),
    No("conflation=auto,max_age=49ms", 16, "no step of auto"),
    No("conflation=auto,min=0s", 20, "min: a duration is from 1ms to 1d"),
    No("conflation=auto,max=2d", 20, "max: a duration is from 1ms to 1d"),
    No("conflation=1s,max_age=999ms", 14, "below the interval"),
    No("conflation=auto,max=2s,max_age=1s", 23, "below the interval"),
    No("max_age=1s", 0, "needs a conflation interval"),
    # never, flush_on
    No("never=[/a = 1]", 0, "needs a conflation interval"),
    No("flush_on=[/a = 1]", 0, "needs a conflation interval"),
    No("conflation=1s,never=/a = 1", 20, "never: expected a filter in brackets"),
    No("conflation=1s,never=[/a = ]", 26, "never: "),
    No("conflation=1s,flush_on=[/a == == 1]", 30, "flush_on: "),
    # oof, no_empties (AMPS 4.2)
    No("oof", 0, "oof needs a topic with a key", "plain"),
    No("oof", 0, "oof needs a topic with a key", "retained"),
    No("no_empties", 0, "needs a delta command"),
    No("no_empties", 0, "needs a delta command", command="sow"),
    No("bookmark=epoch,oof", 15, "receives no removals"),
    # select
    No("select=[/a]", 8, "select: expected + or -"),
    No("select=-/a", 7, "select: "),
    No("select=[-/a]x", 7, "select: "),
    No("select=[-/a]", 0, "needs messages with fields", "text"),
    # projection, grouping
    No("projection=[SUM(/q) AS /t]", 0, "come together"),
    No("oof,grouping=[/a]", 4, "come together"),
    No("projection=[SUM(/q) AS /t],grouping=/a", 36, "grouping: "),
    No("grouping=[/a],projection=[SUM(/q) AS ]", 37, "projection: "),
    No("projection=[SUM(/q) AS /t],grouping=[/a]", 0, "needs a topic with a key", "plain"),
    No("projection=[SUM(/q) AS /t],grouping=[/a],select=[-/x]", 41, "select is for messages"),
    No("projection=[SUM(/q) AS /t],grouping=[/a],top_n=3", 41, "no window"),
    No(
        "projection=[SUM(/q) AS /t],grouping=[/a]",
        *(0, "begins with a snapshot", "keyed", "subscribe"),
    ),
    No("projection=[SUM(/q) AS /t],grouping=[/a],bookmark=epoch", 0, "begins with a snapshot"),
    No(
        "projection=[SUM(/q) AS /t],grouping=[/a],conflation=1s,conflation_key=[/k]",
        *(55, "is its grouping"),
    ),
    No(
        "projection=[SUM(/q) AS /t],grouping=[/a],conflation=1s,reduce=[/q:sum]",
        *(55, "reduce is for messages"),
    ),
    # top_n, skip_n
    No("top_n=0", 6, "from 1 to 10000"),
    No("top_n=10001", 6, "from 1 to 10000"),
    No("top_n=-1", 6, "whole number"),
    No("top_n=1.0", 6, "whole number"),
    No("top_n=3,skip_n=1000001", 15, "from 0 to 1000000"),
    No(" skip_n=3", 1, "needs top_n"),
    No("top_n=3", 0, "needs a topic with a key", "plain"),
    No("top_n=3", 0, "begins with a snapshot", command="subscribe"),
    No("top_n=3", 0, "begins with a snapshot", command="delta_subscribe"),
    No("top_n=3,conflation=1s,conflation_key=[/x]", 22, "key of a window"),
    No("top_n=3,conflation=1s,reduce=[/q:sum]", 22, "reduce is for messages"),
    # batch_size
    No("batch_size=0", 11, "from 1 to 10000"),
    No("batch_size=10001", 11, "from 1 to 10000"),
    No("batch_size=ten", 11, "whole number"),
    # bookmark and what needs it
    No("bookmark=yesterday", 9, "expected epoch, now, a bookmark or a time such as 2025-"),
    No("bookmark=-1h", 9, "expected epoch, now, a bookmark or a time such as 2025-"),
    No("bookmark=0", 9, "0 of AMPS is epoch here"),
    No("bookmark=0|1|", 9, "0|1| of AMPS is now here"),
    No("bookmark=recent", 9, "the bookmark that you have stored"),
    No("bookmark=2025-02-29T00:00:00Z", 9, "no such day"),
    No("bookmark=epoch", 0, "command subscribe", command="sow_and_subscribe"),
    No("bookmark=epoch", 0, "command subscribe", command="sow"),
    No("bookmark=epoch", 0, "command subscribe", command="delta_subscribe"),
    No("bookmark_not_found=epoch", 0, "needs bookmark"),
    No("bookmark=e1-1,bookmark_not_found=begin", 33, "expected epoch, now or fail"),
    No("rate=2X", 0, "needs bookmark"),
    No("rate=2X,rate_max_gap=1s", 0, "needs bookmark"),
    No("pause", 0, "needs bookmark"),
    No("bookmark=epoch,rate_max_gap=1s", 15, "needs rate"),
    No("bookmark=epoch,rate=fast", 20, "rate: expected messages"),
    No("bookmark=epoch,rate=0", 20, "above 0"),
    No("bookmark=epoch,rate=0X", 20, "above 0"),
    No("bookmark=epoch,rate=X", 20, "rate: expected messages"),
    No("bookmark=epoch,rate=1X,rate_max_gap=0s", 36, "from 1ms to 1d"),
    No("bookmark=epoch,rate=2X,live", 23, "exclude one another"),
    No("bookmark=epoch,live,pause", 15, "exclude one another"),
    # reduce
    No("reduce=[/q:sum]", 0, "needs a conflation interval"),
    No("conflation=1s,reduce=[/q:most]", 25, "reduce: "),
    No("conflation=1s,reduce=[/k:sum]", 14, "a field of the key"),
    No("conflation=1s,conflation_key=[/g],reduce=[/g/h:sum]", 34, "a field of the key"),
    No("conflation=1s,reduce=/q:sum", 21, "reduce: "),
    # commands
    No("", None, "command: expected one of", command="publish"),
    No("", None, "command: expected one of", command="SOW"),
    No("", None, "keeps records", "plain", "sow"),
    No("", None, "keeps records", "plain", "sow_and_subscribe"),
    No("", None, "keeps records", "series", DELTA),
]


@pytest.mark.parametrize("row", GRANTED, ids=str)
def test_what_is_granted(row: Row) -> None:
    decided = decide(row.topic, TOPICS[row.topic], Options.parse(row.options), command=row.command)
    assert granted(decided) == row.granted


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_what_is_refused_and_where(row: No) -> None:
    with pytest.raises(OptionsInvalid) as refused:
        decide(row.topic, TOPICS[row.topic], Options.parse(row.options), command=row.command)
    assert row.detail in refused.value.detail
    assert (refused.value.code, refused.value.position) == ("options-invalid", row.position)


def test_the_table_has_every_option() -> None:
    names = {name for row in GRANTED for name in Options.parse(row.options).positions}
    assert names == {name for name, option in TABLE.items() if not option.only_in_change}
