"""Targets: the languages that people write: options, filters, paths, orders, durations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from tests.fuzz.mutating import CHARACTERS, NUMBERS, mutated
from tests.fuzz.target import Target
from tests.keys.filter.oracle.filters import FilterWriter
from tests.keys.filter.oracle.messages import random_message
from tidegate.app.refusals import CODES
from tidegate.conflation.definition import Definition, History, Kind, QueuePolicy
from tidegate.conflation.errors import EngineError
from tidegate.conflation.options.grant import Request, grant, granted
from tidegate.conflation.options.table import Options
from tidegate.keys.errors import KeysError
from tidegate.keys.filter import Expression, Filter
from tidegate.keys.jsontext import one_line
from tidegate.keys.order import Order
from tidegate.keys.path import FieldPath
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import duration_text, parse_duration, parse_interval
from tidegate.keys.text.rate import parse_rate, rate_text
from tidegate.keys.text.size import parse_size, size_text
from tidegate.keys.text.time import parse_time, time_text

PATHS: Final = (
    "/a", "/b", "/a/b", "/k", "/l[0]", "/l/a", "$.a", "$.a.b", "$['a b']", '$["a"]', "$.l[0]",
    "[/a b]", "[/a,b]", "/a-1", "/@t", "/\xe9", "$.a-b", "/l[0][1]", "/o/l/a", "/0", "/a.b",
    "$.\xe9",
)  # fmt: skip
TIMES: Final = (
    "2025-09-09T17:19:19Z", "2025-09-09T17:19:19.123456789+02:00", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00",
    "20250909T171919Z", "2024-02-29", "2025-02-29", "1757438359", "1757438359.5",
)  # fmt: skip
DURATIONS: Final = (
    "1s", "250ms", "1d", "1ms", "86400s", "1000000000ns", "1.5s", "2S", "1h", "1w", "0s", "25h",
    "99999999999999999999w", "36500d", "1us", "1m", "100ms",
)  # fmt: skip
FILTERS: Final = (
    "/a > 1", "/b = 'x'", "/a IN (1,2)", "/b LIKE '^a'", "/a IS NULL", "TRUE", "/a BETWEEN 1 AND 2",
    "NOT (/a = 1 OR /b = 'y')", "LENGTH(/b) > 1", "/a = /b", "/b = ']'", "/a[0] = 1",
)  # fmt: skip
VALUES: Final[dict[str, Sequence[str]]] = {
    "conflation": (*DURATIONS, "auto", "none"),
    "pace": ("batch", "key"),
    "edge": ("leading", "trailing"),
    "min": DURATIONS,
    "max": DURATIONS,
    "max_age": DURATIONS,
    "bookmark": ("epoch", "now", "abc-1", "a-0", *TIMES),
    "bookmark_not_found": ("epoch", "now", "fail"),
    "rate": ("1000", "500KB", "2X", "0.5x", "1e3", "0", "2 x", "1MiB", "9" * 30),
    "rate_max_gap": DURATIONS,
    "top_n": ("1", "10", "1000", "0", "10001"),
    "skip_n": ("0", "1", "10"),
    "batch_size": ("1", "100", "0", "99999999"),
}
NAMES: Final = (*Options.parse("").said, *VALUES, "conflation_key", "never", "flush_on", "select",
                "projection", "grouping", "reduce", "timestamp", "receipt", "oof", "no_empties",
                "send_keys", "no_sowkey", "progress", "no_defaults", "live", "pause", "resume",
                "replace", "non_regex_topic")  # fmt: skip
PIECES: Final = (
    *CHARACTERS, *NUMBERS, *PATHS, *DURATIONS, *FILTERS, *NAMES, "conflation=", "[/a,/b]", "sum",
    "last", "max@b", "count", "avg", "append", "union", "AS", "DESC", "ASC", "TEXT", "SUM(/a)",
    "COUNT(/a)", "-/", "+/a", "''", "[[", "]]", "AND", "OR", "NOT", "(((", "1" * 80, "/a" * 65,
)  # fmt: skip
# As the engine gets them: on one line, without space around.
MESSAGES: Final = tuple(one_line(random_message(Random(seed))) for seed in range(40))
_KEYED = KeySpec.of(["/k"])
DEFINITIONS: Final = (
    Definition(History(100), _KEYED),
    Definition(History(100)),
    Definition(History(100), retains=True),
    Definition(History(100), _KEYED, policy=QueuePolicy.ALWAYS, merge=Reduce.of({"/a": "sum"})),
    Definition(History(100), kind=Kind.TEXT, retains=True),
    Definition(History(100), kind=Kind.SERIES, policy=QueuePolicy.OFF),
    Definition(History(100), KeySpec.of(["/k", "/a"]), values_only=True, replaces=True),
)
COMMANDS: Final = (None, "subscribe", "sow_and_subscribe", "sow", "delta_subscribe",
                   "sow_and_delta_subscribe", "zzq")  # fmt: skip


def refusal(error: KeysError | EngineError, *texts: str) -> None:
    """A refusal has a code that clients know, a sentence, and a position inside a text."""
    assert error.code in CODES
    assert error.code != "internal"
    assert error.detail
    if error.position is not None:
        assert 0 <= error.position <= max(map(len, texts)), error.position


# Options


def an_option(random: Random) -> str:
    """One option, sound or nearly so."""
    name = random.choice(NAMES)
    if name in VALUES:
        return f"{name}={random.choice(VALUES[name])}"
    match name:
        case "conflation_key" | "grouping":
            return f"{name}={a_list(random)}"
        case "never" | "flush_on":
            return f"{name}=[{random.choice(FILTERS)}]"
        case "select":
            return f"{name}={a_select(random)}"
        case "projection":
            return f"projection={a_projection(random)},grouping=[/k]"
        case "reduce":
            return f"reduce={a_reduce(random)}"
    return name


def a_list(random: Random) -> str:
    """A list of paths."""
    return "[" + ",".join(random.choices(PATHS, k=random.randint(1, 3))) + "]"


def a_select(random: Random) -> str:
    """A select list."""
    parts = [
        random.choice("+-") + random.choice((*PATHS, "/")) for _ in range(random.randint(1, 4))
    ]
    return "[" + ",".join(parts) + "]"


def a_projection(random: Random) -> str:
    """The columns of a projection."""
    parts = [
        random.choice(("/k", "SUM(/a) AS /s", "COUNT(/a) AS /n", "AVG(/a) AS /m", "MAX(/b) AS /x",
                       "/a + 1 AS /y", "CONCAT(/b,'x') AS /z", "STDDEV_POP(/a) AS /d",
                       "COUNT_DISTINCT(/b) AS /u"))
        for _ in range(random.randint(1, 3))
    ]  # fmt: skip
    return "[" + ",".join(parts) + "]"


def a_reduce(random: Random) -> str:
    """A list of reducers."""
    parts = [
        random.choice(PATHS) + ":"
        + random.choice(("last", "first", "sum", "min", "max", "count", "avg", "append", "union",
                         "max@h", "min@l"))
        for _ in range(random.randint(1, 3))
    ]  # fmt: skip
    return "[" + ",".join(parts) + "]"


def an_order(random: Random) -> str:
    """The columns of an order."""
    parts = [random.choice(PATHS) + random.choice(("", " ASC", " DESC", " TEXT", " DESC TEXT"))
             for _ in range(random.randint(1, 3))]  # fmt: skip
    return ",".join(parts)


def _spoilt(make: Callable[[Random], str], share: float = 0.7) -> Callable[[Random], str]:
    """Inputs of a grammar, most of them with something changed."""

    def made(random: Random) -> str:
        text = make(random)
        return mutated(random, text, PIECES) if random.random() < share else text

    return made


def some_options(random: Random) -> str:
    """A string of options."""
    parts = [an_option(random) for _ in range(random.randint(0, 4))]
    return random.choice((",", ",", ", ", " ,")).join(parts) + random.choice(("", "", ","))


def a_request(random: Random) -> tuple[str, str, str, str | None, int]:
    """Options, filter, order, command, and the definition of the topic that they are for."""
    return (
        _spoilt(some_options, 0.3)(random),
        random.choice(("", "", random.choice(FILTERS))),
        random.choice(("", "", an_order(random))),
        random.choice(COMMANDS),
        random.randrange(len(DEFINITIONS)),
    )


def check_options(text: str) -> bool:
    """Options parse, or are refused with a position; what is printed parses to the same."""
    for is_change in (False, True):
        try:
            options = Options.parse(text, is_change=is_change)
        except (EngineError, KeysError) as error:
            refusal(error, text)
            continue
        printed = options.text()
        assert Options.parse(printed, is_change=is_change).text() == printed
        assert Options.parse(printed, is_change=is_change).said == options.said
        return True
    return False


def check_request(given: tuple[str, str, str, str | None, int]) -> bool:
    """A request is granted or refused; what was granted, asked for again, is granted the same."""
    text, filter_text, order_text, command, number = given
    definition = DEFINITIONS[number]
    try:
        options = Options.parse(text)
        asked = Request("t", definition, options, command=command, filter_text=filter_text,
                        order_text=order_text)  # fmt: skip
        found = grant(asked).subscription
    except (EngineError, KeysError) as error:
        refusal(error, text, filter_text, order_text)
        return False
    again = Request("t", definition, Options.parse(granted(found)), command=found.command,
                    filter_text=filter_text, order_text=order_text,
                    counted=found.counted)  # fmt: skip
    assert grant(again).subscription == found, granted(found)
    return True


# Filters, and what else looks into messages


def a_filter(random: Random) -> str:
    """A filter or an expression."""
    writer = FilterWriter(random)
    return writer.text() if random.random() < 0.7 else writer.expression()


def check_filter(text: str) -> bool:
    """A filter has one canonical text, and answers every message, by both texts alike."""
    try:
        found = Filter.parse(text)
    except KeysError as error:
        refusal(error, text)
        return False
    canonical = str(found)
    again = Filter.parse(canonical)
    assert str(again) == canonical
    match, match_again = found.matcher("t"), again.matcher("t")
    expression = Expression.parse(text).evaluator("t")
    for message in MESSAGES[: 1 + len(text) % 5]:
        assert match(message, "[1]") is match_again(message, "[1]")
        expression(message)
    return True


def check_select(text: str) -> bool:
    """A select list keeps parts of a message, and keeping twice is keeping once."""
    try:
        found = Select.parse(text)
    except KeysError as error:
        refusal(error, text)
        return False
    assert str(Select.parse(str(found))) == str(found)
    for message in MESSAGES[: 1 + len(text) % 7]:
        kept = found.apply(message)
        assert found.apply(kept) == kept
        assert Select.parse(str(found)).apply(message) == kept
    return True


def check_order(text: str) -> bool:
    """An order sorts any messages, and so does its canonical text."""
    try:
        found = Order.parse(text)
    except KeysError as error:
        refusal(error, text)
        return False
    again = Order.parse(str(found))
    assert str(again) == str(found)
    messages = MESSAGES[: 2 + len(text) % 9]
    assert sorted(messages, key=found.sort_token) == sorted(messages, key=again.sort_token)
    return True


def a_view(random: Random) -> tuple[str, str]:
    """A projection and its grouping."""
    return _spoilt(a_projection)(random), _spoilt(a_list, 0.2)(random)


def check_projection(given: tuple[str, str]) -> bool:
    """A projection makes a row of any messages, and so do its canonical texts."""
    projection, grouping = given
    try:
        found = Projection.parse(projection, 0, grouping, 0)
    except KeysError as error:
        refusal(error, projection, grouping)
        return False
    again = Projection.parse(found.projection_text, 0, str(found.grouping), 0)
    assert str(again) == str(found)
    for message in MESSAGES[: 1 + len(projection) % 5]:
        assert found.group_key(message) == again.group_key(message)
        assert found.row([message, MESSAGES[0]]) == again.row([message, MESSAGES[0]])
    return True


def check_reduce(text: str) -> bool:
    """Reducers merge any messages; the grouping makes no difference, nor does saving."""
    try:
        found = Reduce.parse(text)
    except KeysError as error:
        refusal(error, text)
        return False
    assert str(Reduce.parse(str(found))) == str(found)
    one, two, three = map(found.begin, MESSAGES[len(text) % 30 :][:3])
    in_a_row = one.join(two).join(three)
    assert in_a_row.payload() == one.join(two.join(three)).payload()
    assert found.loaded(in_a_row.saved()).payload() == in_a_row.payload()
    return True


def check_path(text: str) -> bool:
    """A path, and a key of it, print as what they are parsed from."""
    is_path = False
    for parse in (FieldPath.parse, KeySpec.parse):
        try:
            found: Any = parse(text)
        except KeysError as error:
            refusal(error, text)
            continue
        is_path = True
        again = parse(str(found))
        assert again == found
        assert str(again) == str(found)
    return is_path


# Short texts


def check_texts(text: str) -> bool:
    """A duration, size, rate, time or bookmark that is read prints as a text that is read alike."""
    accepted = False
    for read, write in _TEXTS:
        try:
            value = read(text)
        except KeysError as error:
            refusal(error, text)
            continue
        accepted = True
        assert read(write(value)) == value, (value, write(value))
    return accepted


_TEXTS: tuple[tuple[Callable[[str], Any], Callable[[Any], str]], ...] = (
    (parse_duration, duration_text),
    (parse_interval, duration_text),
    (parse_size, size_text),
    (parse_rate, rate_text),
    (parse_time, time_text),
    (Bookmark.parse, str),
)


def a_text(random: Random) -> str:
    """A short text of some kind."""
    kinds = (DURATIONS, TIMES, VALUES["rate"], ("1MiB", "8KB", "1b", "2GiB", "10"),
             ("abc-1", "a-0", "a-9223372036854775807", "zz-01"), NUMBERS)  # fmt: skip
    return random.choice(random.choice(kinds))


TARGETS: Final = (
    Target("options", _spoilt(some_options), check_options),
    Target("requests", a_request, check_request),
    Target("filters", _spoilt(a_filter, 0.4), check_filter),
    Target("select", _spoilt(a_select), check_select),
    Target("order", _spoilt(an_order), check_order),
    Target("projection", a_view, check_projection),
    Target("reduce", _spoilt(a_reduce), check_reduce),
    Target("paths", _spoilt(lambda random: random.choice((random.choice(PATHS), a_list(random)))),
           check_path),
    Target("texts", _spoilt(a_text), check_texts),
)  # fmt: skip
