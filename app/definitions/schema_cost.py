"""The cost of a JSON Schema: weighed once, so that the work of a check is known before it begins.

The library that evaluates schemas has no limit of its own and holds the interpreter while it works,
so a check that has begun cannot be stopped. One unit is about 100 ns of work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.app.definitions.message_cost import SchemaCost, Weight, expanded
from tidegate.app.definitions.schema_document import (
    DIALECT_POINTER,
    SchemaDocument,
    SchemaInvalid,
    check_bound,
    escaped,
    size_of,
    values_in,
)
from tidegate.keys.jsontext import DEPTH_MAX

WEIGHT_MAX = 10_000
NESTING_MAX = 64
EDGES_MAX = 20_000
ROUNDS_MAX = 100_000
PATTERNS_MAX = 5_000
PATTERN_CLASS = 10  # a Unicode class takes about ten times a character to compile

NUMERIC = {"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
NUMBER = 10
ODD_NUMBER = 500


@dataclass(slots=True)
class _Members:
    """The schemas that a value's members meet: `always`, by `named` member, or the `others`.

    `hidden` are those of the others that a named member does not meet.
    """

    always: dict[str, int] = field(default_factory=dict)
    named: dict[str | int, dict[str, int]] = field(default_factory=dict)
    hidden: dict[str | int, dict[str, int]] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)

    def add(self, more: _Members, times: int) -> None:
        """Add the members of a schema that is evaluated `times` at the same value."""
        _count(self.always, more.always, times)
        _count(self.others, more.others, times)
        for name, targets in more.named.items():
            _count(self.named.setdefault(name, {}), targets, times)
            if more.others:
                _count(self.hidden.setdefault(name, {}), more.others, times)

    def targets(self) -> Iterator[str]:
        """Yield every schema that a member can meet."""
        for counter in (self.always, self.others, *self.named.values()):
            yield from counter

    def size(self) -> int:
        """Count the edges."""
        inner = (*self.named.values(), *self.hidden.values())
        return len(self.always) + len(self.others) + sum(map(len, inner))

    def heaviest(self, weights: Mapping[str, Weight]) -> Weight:
        """Return the cost of the member that costs most."""
        base = _total(self.always, weights).plus(_total(self.others, weights))
        most = base
        for name, targets in self.named.items():
            weight = base.plus(_total(targets, weights))
            if name in self.hidden:
                weight = weight.plus(_total(self.hidden[name], weights), -1)
            most = most.most(weight)
        return most


@dataclass(slots=True)
class _Place:
    """A schema; `whole` merges the schemas that are evaluated with it at the same value."""

    own: Weight
    branches: dict[str, int] = field(default_factory=dict)
    objects: _Members = field(default_factory=_Members)
    arrays: _Members = field(default_factory=_Members)
    nesting: int = 1
    marks: bool = False

    @property
    def only_refers(self) -> bool:
        """True if only one other schema says anything about the members of a value."""
        size = self.objects.size() + self.arrays.size()
        return not size and not self.marks and list(self.branches.values()) == [1]


def cost_of(document: dict[str, Any] | bool) -> SchemaCost:
    """Weigh a schema that its dialect's own schema takes.

    Raises:
        SchemaInvalid: a check of one value could take too long, or the schema is too large, has
            a `$id` inside, refers to what is no schema in it, or to itself at the same value.
    """
    edges = _Edges(SchemaDocument(document))
    reached: dict[str, _Place] = {}
    # From the root, so that definitions which nothing refers to cost nothing.
    waiting = [""]
    while waiting:
        pointer = waiting.pop()
        if pointer not in reached:
            place = reached[pointer] = edges.whole(pointer)
            waiting.extend(place.objects.targets())
            waiting.extend(place.arrays.targets())
    # The most that one value can cost, `depth` levels below the value that a place is about.
    weights = {pointer: place.own for pointer, place in reached.items()}
    inner = Weight()
    for depth in range(1, DEPTH_MAX + 1):
        check_bound(depth * edges.size, ROUNDS_MAX, "the schema takes too long to weigh", "")
        newer = _below(reached, weights)
        for pointer, weight in newer.items():
            _bound_weight(weight, pointer)
        inner = inner.most(newer[""])
        # Weights of a schema without recursion settle at its depth, long before DEPTH_MAX.
        if newer == weights:
            break
        weights = newer
    root = reached[""].own
    return SchemaCost(root, inner, edges.has_numbers, edges.has_unique, edges.has_branches)


class _Edges:
    """Builds the places of a document's schemas, each once."""

    def __init__(self, document: SchemaDocument) -> None:
        self._document = document
        self._places: dict[str, _Place] = {}
        self._wholes: dict[str, _Place | None] = {}
        self._patterns = 0
        self.size = 0
        self.has_numbers = self.has_unique = self.has_branches = False

    def whole(self, pointer: str, above: int = 1) -> _Place:
        """Return a schema merged with all that are evaluated with it at the same value.

        `above`: the depth of nesting, with this schema.

        Raises:
            SchemaInvalid: it is evaluated at the same value again, too often, or too deeply.
        """
        if pointer in self._wholes:
            known = self._wholes[pointer]
            if known is None:
                raise SchemaInvalid("the schema refers to itself at the same value", pointer)
            return known
        # Marks it as open: meeting it again below itself would never end.
        self._wholes[pointer] = None
        own = self._place(pointer)
        if not own.branches and not own.marks:
            _bound_weight(own.own, pointer)
            self.size += 1 + own.objects.size() + own.arrays.size()
            check_bound(self.size, EDGES_MAX, "the schema takes too long to weigh", pointer)
            self._wholes[pointer] = own
            return own
        check_bound(
            above, NESTING_MAX, f"more than {NESTING_MAX} schemas lead to each other", pointer
        )
        inner = [(self.whole(it, above + 1), times) for it, times in own.branches.items()]
        nesting = 1 + max((place.nesting for place, _ in inner), default=0)
        check_bound(
            nesting, NESTING_MAX, f"more than {NESTING_MAX} schemas lead to each other", pointer
        )
        # unevaluated* asks every branch again, at each level, which members it has evaluated.
        again = 1 + nesting if own.marks else 1
        whole = _Place(own.own, nesting=nesting)
        for place, times in inner:
            whole.own = whole.own.plus(place.own, times * again)
        _bound_weight(whole.own, pointer)
        self.size += 1 + len(inner)
        if own.only_refers:
            [(place, _)] = inner
            whole.objects, whole.arrays = place.objects, place.arrays
        else:
            for place, times in ((own, 1), *inner):
                whole.objects.add(place.objects, times * again)
                whole.arrays.add(place.arrays, times * again)
            self.size += whole.objects.size() + whole.arrays.size()
        check_bound(self.size, EDGES_MAX, "the schema takes too long to weigh", pointer)
        self._wholes[pointer] = whole
        return whole

    def _place(self, pointer: str) -> _Place:
        """Return a schema by itself; a pointer with `?` names one of the fixed kinds of work."""
        kind, _, figure = pointer.partition(" ")
        if kind == "?key":
            return _Place(Weight(1, 1, int(figure)))
        if kind == "?unique":
            place = _Place(Weight(4, 4, 1))
            place.objects.always["?unique"] = place.arrays.always["?unique"] = 1
            return place
        if kind == DIALECT_POINTER:
            return self._dialect()
        schema = self._document.schemas[pointer]
        if isinstance(schema, bool):
            return _Place(Weight(1, 1))
        place = _Place(self._own(schema, pointer))
        for branch in self._document.branches(schema, pointer):
            _count(place.branches, {branch: 1})
        self._add_objects(place.objects, schema, pointer)
        _add_arrays(place.arrays, schema, pointer)
        place.marks = "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        return place

    def _dialect(self) -> _Place:
        """Return the dialect's own schema: a handful of vocabularies; one has each keyword."""
        self.has_numbers = self.has_unique = self.has_branches = True
        place = _Place(Weight(60, 300, 100))
        for members in (place.objects, place.arrays):
            members.always.update({DIALECT_POINTER: 1, "?unique": 1})
            members.always.update(
                dict.fromkeys(self._document.anchors.get("meta", ()), 1)
            )  # extends it
        return place

    def _own(self, schema: dict[str, Any], pointer: str) -> Weight:
        """Return the cost of a schema without the schemas in it."""
        scalar = 1 + len(schema) + (NUMBER - 1) * len(NUMERIC & schema.keys())
        byte = 1
        if "integer" in _as_list(schema.get("type", ())):
            scalar += NUMBER
        container = len(schema.get("required", ())) + len(schema.get("properties", ()))
        for keyword in ("dependentRequired", "dependencies"):
            container += size_of(schema.get(keyword, {}))
        for keyword in NUMERIC & schema.keys():
            scalar += ODD_NUMBER * _is_odd(schema[keyword])
        for keyword in {"const", "enum"} & schema.keys():
            literals = schema[keyword] if keyword == "enum" else [schema[keyword]]
            numbers = [it for it in values_in(literals) if isinstance(it, int | float)]
            is_exact = all(isinstance(number, int) for number in numbers)
            scalar += 1 if not numbers else NUMBER if is_exact else 2 * NUMBER
            scalar += ODD_NUMBER // 5 * sum(map(_is_odd, numbers))
            if any(isinstance(literal, dict | list) for literal in literals):
                scalar += len(literals)  # else a table has them
                container += size_of(literals)
        if "pattern" in schema:
            byte += self._pattern(schema["pattern"], pointer + "/pattern")
        self.has_numbers |= bool(NUMERIC & schema.keys() or {"const", "enum"} & schema.keys())
        self.has_numbers |= "type" in schema or "uniqueItems" in schema
        self.has_unique |= schema.get("uniqueItems", False)
        self.has_branches |= "anyOf" in schema or "oneOf" in schema
        return Weight(scalar, scalar + container, byte)

    def _pattern(self, pattern: str, pointer: str) -> int:
        self._patterns += expanded(pattern, PATTERN_CLASS, PATTERNS_MAX)
        check_bound(self._patterns, PATTERNS_MAX, "the schema's patterns are too large", pointer)
        return expanded(pattern, 1, PATTERNS_MAX)

    def _add_objects(self, objects: _Members, schema: dict[str, Any], pointer: str) -> None:
        for name in schema.get("properties", ()):
            objects.named[name] = {f"{pointer}/properties/{escaped(name)}": 1}
        for pattern in schema.get("patternProperties", ()):
            at = f"{pointer}/patternProperties/{escaped(pattern)}"
            _count(objects.always, {at: 1})
            _count(objects.always, {f"?key {self._pattern(pattern, at)}": 1})
        if "properties" in schema or "additionalProperties" in schema:
            _count(objects.always, {"?key 0": 1})
        for keyword in ("propertyNames", "unevaluatedProperties"):
            if keyword in schema:
                objects.always[f"{pointer}/{keyword}"] = 1
        if "additionalProperties" in schema:
            objects.others[f"{pointer}/additionalProperties"] = 1
            objects.hidden = dict.fromkeys(objects.named, objects.others)


def _add_arrays(arrays: _Members, schema: dict[str, Any], pointer: str) -> None:
    for number in range(len(schema.get("prefixItems", ()))):
        arrays.named[number] = {f"{pointer}/prefixItems/{number}": 1}
    if "items" in schema:
        arrays.others[f"{pointer}/items"] = 1
        arrays.hidden = dict.fromkeys(arrays.named, arrays.others)
    for keyword in ("contains", "unevaluatedItems"):
        if keyword in schema:
            arrays.always[f"{pointer}/{keyword}"] = 1
    if schema.get("uniqueItems"):
        arrays.always["?unique"] = 1


def _below(places: Mapping[str, _Place], weights: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return the cost of the most expensive member of each place, given its members' `weights`."""
    known: dict[int, Weight] = {}  # places that only refer share their members
    below: dict[str, Weight] = {}
    for pointer, place in places.items():
        for members in (place.objects, place.arrays):
            if id(members) not in known:
                known[id(members)] = members.heaviest(weights)
        below[pointer] = known[id(place.objects)].most(known[id(place.arrays)])
    return below


def _count(counts: dict[str, int], more: Mapping[str, int], times: int = 1) -> None:
    for target, count in more.items():
        counts[target] = counts.get(target, 0) + count * times


def _total(targets: Mapping[str, int], weights: Mapping[str, Weight]) -> Weight:
    total = Weight()
    for target, count in targets.items():
        total = total.plus(weights[target], count)
    return total


def _bound_weight(weight: Weight, pointer: str) -> None:
    detail = f"a check of one value could take more than {WEIGHT_MAX} steps"
    check_bound(weight.greatest, WEIGHT_MAX, detail, "" if pointer[:1] == "?" else pointer)


def _is_odd(number: float) -> bool:
    """Return True for a number outside a machine word, or very close to zero."""
    return abs(number) >= 1 << 64 or 0 < abs(number) < 1e-9


def _as_list(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else (value,)
