"""What reducers keep of a field: states that join in order, however they are grouped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any

from keys.number import Exact, comparable, exact, is_number, spelled
from keys.value import NULL, canonical_value, items, string


class Reducer(StrEnum):
    """The names of reducers, as in options and topic definitions."""

    LAST = "last"
    FIRST = "first"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    COUNT = "count"
    AVG = "avg"
    APPEND = "append"
    UNION = "union"


@dataclass(frozen=True, slots=True)
class Monoid:
    """Of one message's field a state, of two states one, of a state JSON text.

    States are immutable, and None is the state of nothing; only `lift` gives it. `show` answers
    None where there is nothing to show. `load` makes of the JSON text that `save` writes a state
    that goes on as the one that was saved.
    """

    lift: Callable[[bytes | None], Any]
    join: Callable[[Any, Any], Any]
    show: Callable[[Any], bytes | None]
    save: Callable[[Any], bytes]
    load: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class _Mean:
    total: Exact
    count: int


@dataclass(frozen=True, slots=True)
class _Extreme:
    """The best number with the text it was published as, and the best string."""

    number: tuple[int | Decimal, bytes] | None
    words: tuple[str, bytes] | None


def join(monoid: Monoid, one: Any, later: Any) -> Any:
    """Two states as one, either of which may be nothing."""
    if one is None or later is None:
        return later if one is None else one
    return monoid.join(one, later)


def _present(text: bytes | None) -> bytes | None:
    """A field's text; null is nothing."""
    return None if text == NULL else text


def _number(text: bytes | None) -> Exact | None:
    return exact(text) if text is not None and is_number(text) else None


def _mean(text: bytes | None) -> _Mean | None:
    number = _number(text)
    return None if number is None else _Mean(number, 1)


def _extreme(text: bytes | None) -> _Extreme | None:
    if text is None:
        return None
    if is_number(text):
        return _Extreme((comparable(text), text), None)
    said = string(text)
    return None if said is None else _Extreme(None, (said, text))


def _better(sign: int) -> Callable[[_Extreme, _Extreme], _Extreme]:
    """The smaller of two, for sign 1, or the greater, for -1; the first among equals."""

    def pick(one: Any, later: Any) -> Any:
        if one is None or later is None:
            return later if one is None else one
        wins = later[0] < one[0] if sign > 0 else later[0] > one[0]
        return later if wins else one

    def better(one: _Extreme, later: _Extreme) -> _Extreme:
        return _Extreme(pick(one.number, later.number), pick(one.words, later.words))

    return better


def _best(state: _Extreme) -> bytes | None:
    found = state.number or state.words
    return None if found is None else found[1]


def _listed(text: bytes | None) -> tuple[bytes, ...] | None:
    if text is None or text == NULL:
        return None
    parts = items(text)
    return (text,) if parts is None else tuple(map(bytes, parts))


def _distinct(text: bytes | None) -> dict[str, bytes] | None:
    parts = _listed(text)
    return None if parts is None else _united({}, {canonical_value(part): part for part in parts})


def _united(one: dict[str, bytes], later: dict[str, bytes]) -> dict[str, bytes]:
    new = {name: text for name, text in later.items() if name not in one}
    return {**one, **new} if new else one


def _array(parts: Any) -> bytes:
    return b"[" + b",".join(parts) + b"]"


def _save_number(number: Exact) -> bytes:
    return b'"%s"' % str(number).encode()


def _load_number(text: bytes) -> Exact:
    said = text.decode().strip('"')
    return Fraction(said) if "/" in said else int(said)


def _save_mean(mean: _Mean) -> bytes:
    return b"[%s,%d]" % (_save_number(mean.total), mean.count)


def _load_mean(text: bytes) -> _Mean:
    total, count = items(text) or []
    return _Mean(_load_number(bytes(total)), int(bytes(count)))


def _save_extreme(state: _Extreme) -> bytes:
    return _array(NULL if found is None else found[1] for found in (state.number, state.words))


def _load_extreme(text: bytes) -> _Extreme:
    parts = [_extreme(bytes(part)) or _Extreme(None, None) for part in items(text) or []]
    return _Extreme(parts[0].number, parts[1].words)


MONOIDS: dict[Reducer, Monoid] = {
    Reducer.LAST: Monoid(
        lambda text: text or b"",
        lambda one, later: later,
        lambda at: at or None,
        lambda at: _array([at] if at else []),
        lambda text: b"".join(_listed(text) or ()),
    ),
    Reducer.FIRST: Monoid(
        _present,
        lambda one, later: one,
        lambda first: first,
        lambda first: first,
        lambda text: text,
    ),
    Reducer.SUM: Monoid(
        _number, lambda one, later: one + later, spelled, _save_number, _load_number
    ),
    Reducer.MIN: Monoid(_extreme, _better(1), _best, _save_extreme, _load_extreme),
    Reducer.MAX: Monoid(_extreme, _better(-1), _best, _save_extreme, _load_extreme),
    Reducer.COUNT: Monoid(
        lambda text: None if _present(text) is None else 1,
        lambda one, later: one + later,
        spelled,
        _save_number,
        _load_number,
    ),
    Reducer.AVG: Monoid(
        _mean,
        lambda one, later: _Mean(one.total + later.total, one.count + later.count),
        lambda mean: spelled(Fraction(mean.total) / mean.count),
        _save_mean,
        _load_mean,
    ),
    Reducer.APPEND: Monoid(_listed, lambda one, later: one + later, _array, _array, _listed),
    Reducer.UNION: Monoid(
        _distinct,
        _united,
        lambda found: _array(found.values()),
        lambda found: _array(found.values()),
        _distinct,
    ),
}
