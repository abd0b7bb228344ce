"""The fields of a topic's document, one reader each: the decoded value in, what it means out.

Every reader raises `Problem` with a pointer to its field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.schema import Schema
from tidegate.app.definitions.schema_document import SchemaInvalid
from tidegate.app.http.problems import Problem
from tidegate.conflation.definition import Kind, Priority, QueuePolicy
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.table import Options
from tidegate.keys.errors import PathInvalid
from tidegate.keys.merging import Matcher, Merger
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import MILLISECOND, parse_duration
from tidegate.keys.text.size import parse_size

Choice = TypeVar("Choice", bound=StrEnum)

DESCRIPTION_CHARACTERS_MAX = 4_096
HISTORY_MESSAGES_MAX = 1 << 53
"""Every number up to this is exact for scripts of the bus and for readers of JSON."""

REPLACES = "replace"

_POLICIES = "off, conflate, always or unsubscribe"


class Placement(StrEnum):
    """Where in a queue the survivor stands: at the end, or in the slot of what it replaces."""

    APPEND = "append"
    REPLACE = "replace"


def read_key(value: object) -> KeySpec:
    """`key`: a list of field paths.

    Raises:
        Problem: key-invalid.
    """
    return _paths(value, "key-invalid", "/key")


def read_policy(value: object) -> QueuePolicy:
    """`conflation`: what a full session queue does.

    Raises:
        Problem: policy-invalid.
    """
    if not isinstance(value, str) or value not in set(QueuePolicy):
        raise _policy_invalid(f"conflation is {_POLICIES}.")
    return QueuePolicy(value)


def read_options(value: object) -> str:
    """`options`: default options of the topic's subscriptions, as their text.

    Raises:
        Problem: options-invalid, with the position in the text.
    """
    if not isinstance(value, str):
        raise Problem("options-invalid", "options is a text.", pointer="/options")
    try:
        Options.parse(value)
    except OptionsInvalid as error:
        raise Problem(
            error.code, f"{error.detail}.", position=error.position, pointer="/options"
        ) from None
    return value


def check_options(text: str, characters_max: int) -> None:
    """`options` are as long as those of a request may be; what is kept already is not asked.

    Raises:
        Problem: options-invalid.
    """
    if len(text) > characters_max:
        detail = f"options has at most {characters_max} characters."
        raise Problem("options-invalid", detail, pointer="/options")


def merge_reader(mergers: Mergers) -> Callable[[object], Reduce | Merger | None]:
    """Reads `merge`: `replace` (None), an object from path to reducer, or a registered merger."""

    def read(value: object) -> Reduce | Merger | None:
        if value == REPLACES:
            return None
        if isinstance(value, dict) and value:
            return _reduce(value)
        merger = mergers.merger(value) if isinstance(value, str) else None
        if merger is None:
            detail = "merge is replace, an object from field path to reducer, or a merger that the"
            raise _invalid(f"{detail} setting mergers names.", "/merge")
        return merger

    return read


def match_reader(mergers: Mergers) -> Callable[[object], KeySpec | Matcher | None]:
    """Reads `match`: null (the conflation key), a list of paths, or a registered matcher."""

    def read(value: object) -> KeySpec | Matcher | None:
        if value is None:
            return None
        if isinstance(value, list) and value:
            return _paths(value, "topic-invalid", "/match")
        matcher = mergers.matcher(value) if isinstance(value, str) else None
        if matcher is None:
            detail = "match is null, a list of field paths, or a matcher that the setting"
            raise _invalid(f"{detail} mergers names.", "/match")
        return matcher

    return read


def read_expiration(value: object) -> int | None:
    """`expiration`: nanoseconds from a duration, or None.

    Raises:
        Problem: topic-invalid.
    """
    if value is None:
        return None
    expiration_ns = _with_unit(value, parse_duration, "/expiration")
    if expiration_ns < MILLISECOND:
        raise _invalid("expiration is 1ms or longer.", "/expiration")
    return expiration_ns


def read_history(value: object) -> Mapping[str, Any] | None:
    """`history`: what the journal keeps, as it was written; null is the setting's default.

    Raises:
        Problem: topic-invalid.
    """
    if value is None:
        return None
    if not isinstance(value, dict) or not value or set(value) - {"messages", "age", "bytes"}:
        raise _invalid("history has messages, age and bytes, at least one of them.", "/history")
    messages = value.get("messages", 0)
    if not isinstance(messages, int) or isinstance(messages, bool) or messages < 0:
        raise _invalid("messages is a whole number.", "/history/messages")
    if messages > HISTORY_MESSAGES_MAX:
        raise _invalid(f"messages is at most {HISTORY_MESSAGES_MAX}.", "/history/messages")
    for name, reader in (("age", parse_duration), ("bytes", parse_size)):
        if name in value:
            _with_unit(value[name], reader, f"/history/{name}")
    return dict(value)


def read_schema(value: object) -> Schema | None:
    """`schema`: compiled, or None for null.

    Raises:
        Problem: topic-invalid.
    """
    if value is None:
        return None
    try:
        return Schema.compile(value)
    except SchemaInvalid as error:
        raise _invalid(f"{error.detail}.", f"/schema{error.pointer}") from None


def read_description(value: object) -> str:
    """`description`: text for people.

    Raises:
        Problem: topic-invalid.
    """
    if not isinstance(value, str) or len(value) > DESCRIPTION_CHARACTERS_MAX:
        most = DESCRIPTION_CHARACTERS_MAX
        raise _invalid(f"description is a text of at most {most} characters.", "/description")
    return value


def choice_reader(choices: type[Choice], name: str) -> Callable[[object], Choice]:
    """Reads a field that is one of a few words."""

    def read(value: object) -> Choice:
        if not isinstance(value, str) or value not in list(choices):
            raise _invalid(f"{name} is one of {', '.join(choices)}.", f"/{name}")
        return choices(value)

    return read


def flag_reader(name: str) -> Callable[[object], bool]:
    """Reads a field that is true or false."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise _invalid(f"{name} is true or false.", f"/{name}")
        return value

    return read


def merge_shown(merge: Reduce | Merger | None) -> object:
    """What `merge_reader`'s reader reads back to the same."""
    if isinstance(merge, Reduce):
        return {str(one.path): str(one).removeprefix(f"{one.path}:") for one in merge.columns}
    return REPLACES if merge is None else str(merge)


def match_shown(match: KeySpec | Matcher | None) -> object:
    """What `match_reader`'s reader reads back to the same."""
    if isinstance(match, KeySpec):
        return [str(path) for path in match.paths]
    return None if match is None else str(match)


def _reduce(value: Mapping[str, object]) -> Reduce:
    texts = {path: name for path, name in value.items() if isinstance(name, str)}
    if len(texts) < len(value):
        raise _invalid("A reducer is a text.", "/merge")
    try:
        reduce = Reduce.of(texts)
    except PathInvalid as error:
        raise _invalid(f"{error.detail}.", "/merge") from None
    if len({one.path for one in reduce.columns}) < len(reduce.columns):
        raise _invalid("A path stands twice in merge.", "/merge")
    return reduce


def _paths(value: object, code: str, pointer: str) -> KeySpec:
    if not isinstance(value, list) or not all(isinstance(path, str) for path in value):
        raise Problem(code, f"{pointer[1:]} is a list of field paths.", pointer=pointer)
    try:
        return KeySpec.of(value)
    except PathInvalid as error:
        raise Problem(code, f"{error.detail}.", pointer=pointer) from None


def _with_unit(value: object, reader: Callable[[str], int], pointer: str) -> int:
    try:
        if not isinstance(value, str):
            raise ValueError("expected a text with a unit")
        return reader(value)
    except ValueError as error:
        raise _invalid(f"{error}.", pointer) from None


def _invalid(detail: str, pointer: str) -> Problem:
    return Problem("topic-invalid", detail, pointer=pointer)


def _policy_invalid(detail: str) -> Problem:
    return Problem("policy-invalid", detail, pointer="/conflation")


read_kind = choice_reader(Kind, "type")
read_placement = choice_reader(Placement, "placement")
read_priority = choice_reader(Priority, "priority")
