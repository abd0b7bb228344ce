"""The vocabulary of the transcripts: topics, messages, options, drawn from a seed's chance."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

Values = dict[str, Any]

INTERVALS = ("50ms", "100ms", "100ms", "250ms", "333ms", "1s", "1s", "3s")
REDUCERS = (
    "[/n:sum]", "[/n:sum,/n:max@top,/g:first]", "[/n:min,/n:avg@mean,/g:append@gs]",
    "[/n:count@cs,/t:union@ts]", "[/n:last,/g:last]", "[/p:first@p0,/n:max]",
)  # fmt: skip
FILTERS = (
    "/n > 1", "/n > 1", "/g = 'X'", "/g = 'X'", "/g IN ('X', 'Y')", "/k IN ('a', 'c')",
    "/n > 0 AND /g = 'Y'", "/t = 'trade' OR /n = 3", "/p LIKE '^x'", "/n IS NULL", "NOT /g = 'Z'",
    "/a/b = 1", "/g = 'X' AND /k = 'b'",
)  # fmt: skip
BAD_FILTERS = ("/n >", "n > 1", "/g = 'X", "/n > 1 AND")
RULES = ("/n = 3", "/t = 'trade'", "/g = 'Z'", "/n IN (0, 2)")
ORDERS = ("/n DESC", "/n", "/g,/n DESC", "/p TEXT", "/a/b DESC,/k")
SELECTS = ("[-/p]", "[-/,+/k,+/n]", "[-/g,-/p]", "[+/n]", "[-/a,+/a/b]")
GROUPS = (
    ("[/g,SUM(/n) AS /total]", "[/g]"), ("[/g,COUNT(/n) AS /c,MAX(/n) AS /top]", "[/g]"),
    ("[/g,AVG(/n) AS /mean,MIN(/n) AS /low]", "[/g]"), ("[/t,SUM(/n + 1) AS /s]", "[/t]"),
    ("[/g,/t,SUM(/n) AS /total]", "[/g,/t]"),
)  # fmt: skip
RATES = ("1", "5", "40", "1KB", "2X", ".5X", "10X", "1MB")
BAD_OPTIONS = (
    "conflation", "conflation=1.5s", "conflaton=1s", "oof=true", "top_n=0", "rate=0", "pace=slow",
    "conflation=1s,conflation=2s", "never=/n", "grouping=[/g]", "select=[n]", "min=1s", "resume",
    "reduce=[/n:most]", "bookmark=then", "conflation_key=[]", "skip_n=4", "a b=[", "batch_size=x",
    "projection=[/g],grouping=[/t", "conflation=auto,min=5s,max=1s", "max_age=10ms,conflation=1s",
    "conflation=30d", "conflation=1s,edge=leading,pace=batch", "rate_max_gap=1s", "live,pause",
    "conflation=auto,min=60ms,max=70ms", "projection=[/x,SUM(],grouping=[/x]", "zzzzzzz",
    "bookmark=2025-02-30T10:00:00", "bookmark=2025-01-01T10:00:00+25:00", "top_n=2,projection=[/g]",
    "rate=1000X5", "bookmark=2025-01-01", "conflation_key=[/k", "never=[/n >]", "reduce=/n:sum",
    "conflation=1s,,oof", "=1", "conflation==1s", "conflation=1s)",
)  # fmt: skip


def topic(chance: random.Random) -> Values:
    """A definition that a topic may have."""
    kind = chance.choices(("json", "text", "binary", "series"), (20, 1, 1, 1))[0]
    is_json = kind == "json"
    key = chance.choices(([], ["k"], ["k", "g"]), (3, 12, 2))[0] if is_json else []
    retains = bool(key) or (kind != "series" and chance.random() < 0.4)
    policies = ("off", "unsubscribe") if kind == "series" else POLICIES
    merge = match = None
    if is_json and chance.random() < 0.3:
        merge = chance.choice((*(one for one in REDUCERS[:4] if "/g:" not in one), "merger"))
    if is_json and chance.random() < 0.25:
        match = chance.choice(("[/g]", "[/g,/t]", "matcher", "[/k]"))
    return {
        "key": key, "kind": kind, "policy": chance.choice(policies), "retains": retains,
        "values_only": chance.random() < 0.05, "merge": merge, "match": match,
        "replaces": is_json and chance.random() < 0.2,
        "expiration_ms": chance.choice((150, 700, 2_500)) if retains and chance.random() < 0.2
        else None,
        "priority": chance.choice(("low", "default", "default", "high")),
        "tidies": chance.random() < 0.2,
        "history": history(chance),
    }  # fmt: skip


POLICIES = ("off", "conflate", "conflate", "conflate", "always", "unsubscribe")


def history(chance: random.Random) -> list[int | None]:
    """What a journal keeps: messages, bytes, milliseconds."""
    messages = chance.choice((1, 4, 12, 100, 100, 1_000))
    size = chance.choice((None, None, None, 200, 2_000))
    return [messages, size, chance.choice((None, None, None, 50, 1_000))]


def message(chance: random.Random, topic: Values) -> Values:
    """One message of a topic, or the removal of a record."""
    key_names = topic["key"]
    value: Values = {"k": chance.choice("abcde"), "g": chance.choice("XYZ")}
    if chance.random() < 0.05 and "g" not in key_names:
        del value["g"]
    if chance.random() < 0.93:
        value["n"] = chance.choice((0, 1, 2, 3, 3, 4, 2.5, -1))
    if chance.random() < 0.3:
        value["t"] = chance.choice(("trade", "quote", None))
    if chance.random() < 0.2:
        value["p"] = chance.choice("xy") * chance.choice((1, 40, 200))
    if chance.random() < 0.15:
        value["a"] = chance.choice(({"b": 1}, {"b": 2, "c": [1, 2]}, [{"b": 1}], {}))
    key = json.dumps([value[name] for name in key_names], separators=(",", ":"))
    row: Values = {"key": key if key_names else ""}
    if topic["retains"] and chance.random() < 0.1:
        return {**row, "gone": chance.choice(("deleted", "deleted", "expired"))}
    text = json.dumps(value, separators=(",", ":"))
    row["payload"] = text if topic["kind"] in ("json", "series") else f"plain {value.get('n')}"
    if chance.random() < 0.05:
        row["exempt"] = True
    return row


def flood(brings: str, numbers: Iterable[int]) -> Iterator[Values]:
    """One message for each number, or a message and its removal; most have a key of their own."""
    for number in numbers:
        own = "a" if brings == "exempts" else f"f{number}"
        value: Values = {"k": own, "g": "X", "n": number % 5}
        if brings == "text":
            value["p"] = "x" * 1_800
        key = json.dumps([own], separators=(",", ":"))
        row = {"key": key, "payload": json.dumps(value, separators=(",", ":"))}
        yield {**row, "exempt": brings == "exempts"}
        if brings == "removals":
            yield {"key": key, "gone": "deleted"}


def messages(chance: random.Random, topic: Values, most: int = 4) -> list[Values]:
    """What one call publishes."""
    return [message(chance, topic) for _ in range(chance.randint(1, most))]


def interval(chance: random.Random, topic: Values) -> list[str]:
    """How often, and what goes with it."""
    parts = [f"conflation={chance.choice(INTERVALS)}"]
    if chance.random() < 0.05:
        parts = ["conflation=auto", *some(chance, 0.5, "min=200ms"), *some(chance, 0.5, "max=5s")]
    if not topic["key"] or chance.random() < 0.12:
        parts.append(f"conflation_key={chance.choice(('[/k]', '[/g]', '[/k,/t]', '[/k]'))}")
    parts += some(chance, 0.35, f"pace={chance.choice(('batch', 'key', 'key'))}")
    if not any(part.startswith("pace=batch") for part in parts):
        parts += some(chance, 0.3, f"edge={chance.choice(('leading', 'leading', 'trailing'))}")
    parts += some(chance, 0.15, f"never=[{chance.choice(RULES)}]")
    parts += some(chance, 0.15, f"flush_on=[{chance.choice(RULES)}]")
    parts += some(chance, 0.25, f"reduce={chance.choice(REDUCERS)}")
    return parts + some(chance, 0.06, "max_age=4s")


def shape(chance: random.Random) -> list[str]:
    """A window or groups."""
    if chance.random() < 0.5:
        columns, grouping = chance.choice(GROUPS)
        return [f"projection={columns}", f"grouping={grouping}"]
    window = [f"top_n={chance.randint(1, 3)}"]
    return window + some(chance, 0.4, f"skip_n={chance.randint(0, 2)}")


def some(chance: random.Random, share: float, part: str) -> list[str]:
    """The part, or nothing."""
    return [part] if chance.random() < share else []


def options(chance: random.Random, topic: Values, *, command: str | None, replay: bool) -> str:
    """Options that go together, most of the time."""
    if chance.random() < 0.04:
        return chance.choice(BAD_OPTIONS)
    parts: list[str] = []
    has_fields = topic["kind"] in ("json", "series")
    if topic["kind"] != "series" and chance.random() < 0.72:
        parts += interval(chance, topic) if has_fields else ["conflation=100ms"]
    elif chance.random() < 0.3:
        parts.append("conflation=none")
    queries = bool(command and "sow" in command) or (command is None and topic["key"])
    shaped = topic["key"] and queries and not replay and chance.random() < 0.25
    if shaped:
        parts = [part for part in parts if part[:6] not in ("reduce", "confla_")]
        parts = [
            part for part in parts if not part.startswith(("conflation_key", "never", "flush"))
        ]
        parts += shape(chance)
    elif has_fields:
        parts += some(chance, 0.15, f"select={chance.choice(SELECTS)}")
    if topic["key"] and not replay and not any("_key=" in part for part in parts):
        parts += some(chance, 0.35, "oof")
    if command and "delta" in command:
        parts += some(chance, 0.4, "no_empties")
    for flag in ("timestamp", "receipt", "send_keys", "no_sowkey", "progress", "live"):
        parts += some(chance, 0.06, flag)
    parts += some(chance, 0.12, f"batch_size={chance.randint(1, 4)}")
    return ",".join(parts)


def replayed(chance: random.Random, start: str) -> str:
    """A bookmark and how fast it goes on; `start` is already text."""
    parts = [f"bookmark={start}"]
    parts += some(chance, 0.3, f"bookmark_not_found={chance.choice(('epoch', 'now', 'fail'))}")
    if chance.random() < 0.45:
        parts.append(f"rate={chance.choice(RATES)}")
        parts += some(chance, 0.4, f"rate_max_gap={chance.choice(('20ms', '1s'))}")
    return ",".join([*parts, *some(chance, 0.12, "pause")])
