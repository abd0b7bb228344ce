"""The JSON documents that open and change sessions and subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from tidegate.app.documents import Document, Strict, nullable, read
from tidegate.app.names import TopicPattern, checked_topic_name
from tidegate.app.refusals import Refused, refused
from tidegate.app.streams.decisions import SubscriptionParameters
from tidegate.app.streams.encoding import Format
from tidegate.app.streams.subscribe_request import SubscribeRequest
from tidegate.conflation.options.table import Options
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.steps import Steps, in_pieces
from tidegate.conflation.subscription import Command
from tidegate.keys.errors import Refusal
from tidegate.keys.text.size import parse_size

PERCENT_MAX = 100
PARSED_AT_ONCE = 50  # subscriptions of a session: 20 us each

CODES = {"topic": "topic-invalid", "filter": "filter-invalid"}

# What null means in a change of a subscription.
_UNSAID: Mapping[str, Any] = {"options": "replace", "filter": "", "order_by": "", "paused": False}

_COMMANDS: dict[str, Any] = {"enum": [str(command) for command in Command]}
_FORMATS: dict[str, Any] = {"enum": [str(form) for form in Format]}
_OPTIONS = "As in `conflation=1s,pace=batch`"
_FILTER = "Which messages: AMPS's filter language"
_ORDER = "Order of snapshot rows and windows: /a DESC,/b"

_COUNT = WithJsonSchema({"type": "integer", "minimum": 1})
_SIZE = WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]})
_PERCENT = WithJsonSchema({"type": "integer", "minimum": 1, "maximum": PERCENT_MAX})


class LimitsDocument(Strict):
    """The limits of a session's queue, at most those of the gateway; thresholds are percent."""

    takes_null: ClassVar[bool] = False

    messages_max: Annotated[int | None, _COUNT, Field(alias="messages")] = None
    bytes_max: Annotated[
        int | None, _SIZE, Field(alias="bytes", description='A number, or a size: "1MiB"')
    ] = None
    upper_percent: Annotated[int | None, _PERCENT, Field(alias="upper")] = None
    lower_percent: Annotated[int | None, _PERCENT, Field(alias="lower")] = None

    @field_validator("*", mode="plain")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> int | None:
        """Read a number within the gateway's bounds; bytes may have a unit."""
        if value is None and cls.takes_null:
            return None
        name, written = info.field_name or "", ""
        if name == "bytes_max":
            written = ', or a size such as "1MiB"'
            value = parse_size(value) if isinstance(value, str) else value
        greatest = getattr(_context(info)["most"], name) if name in _ABSOLUTE else PERCENT_MAX
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= greatest:
            raise ValueError(f"is a whole number from 1 to {greatest}{written}")
        return value

    def over(self, now: QueueLimits, most: QueueLimits) -> QueueLimits:
        """Return the changed limits: an absent field changes nothing, null sets the gateway's own.

        Raises:
            Refused: options-invalid, if lower would be above upper.
        """
        named = {name: getattr(self, name) for name in self.model_fields_set}
        own = {name: getattr(most, name) for name, value in named.items() if value is None}
        limits = replace(now, **(named | own))
        if limits.lower_percent > limits.upper_percent:
            raise Refused("options-invalid", "lower is above upper.", pointer="/limits/lower")
        return limits


_ABSOLUTE = ("messages_max", "bytes_max")


class LimitsPatch(LimitsDocument):
    """A JSON Merge Patch of limits; null sets the gateway's own."""

    model_config = ConfigDict(json_schema_extra=nullable)
    takes_null = True


def _within(text: str, info: ValidationInfo) -> str:
    """Refuse a text that is longer than the gateway's setting allows."""
    characters_max = _context(info)["characters_max"]
    if len(text) > characters_max:
        raise ValueError(f"has at most {characters_max} characters")
    return text


def _context(info: ValidationInfo) -> Mapping[str, Any]:
    """Return what the gateway's settings allow."""
    context: Mapping[str, Any] | None = info.context
    assert context is not None, "read() gives it"
    return context


Text = Annotated[str, AfterValidator(_within)]


class SubscriptionRequest(Strict):
    """A subscription that is requested."""

    codes = CODES

    topic: Annotated[str, Field(description="A topic's name, or a pattern: px.*.eu, px.>")]
    options: Annotated[Text, Field(description=_OPTIONS)] = ""
    filter: Annotated[Text, Field(description=_FILTER)] = ""
    order_by: Annotated[Text, Field(description=_ORDER)] = ""
    # Their defaults depend on the topic, so the schema shows none; an absent field is not read.
    command: Annotated[Text, Field(default_factory=str, json_schema_extra=_COMMANDS)]
    format: Annotated[Text, Field(default_factory=str, json_schema_extra=_FORMATS)]


class SessionOpening(Strict):
    """A session that is to be opened; every field is optional."""

    codes = CODES

    limits: LimitsDocument | None = None
    conflated: Annotated[bool, Field(description="Whether topics' policies hold for it")] = True
    subscriptions: Annotated[list[SubscriptionRequest], Field(default_factory=list)]


class SessionTuning(Strict):
    """A JSON Merge Patch of a session: null sets what the gateway has."""

    limits: LimitsPatch | None = None
    conflated: bool | None = None


class SubscriptionChange(Strict):
    """A JSON Merge Patch of a subscription: null sets what one without the field has."""

    codes = CODES

    options: Annotated[Text | None, Field(description="Laid over those before")] = None
    conflation: Annotated[Text, Field(default_factory=str, description="That option alone")]
    filter: Annotated[Text | None, Field(description=_FILTER)] = None
    order_by: Annotated[Text | None, Field(description=_ORDER)] = None
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A topic or a pattern, and the request to subscribe to it."""

    topic: str | TopicPattern
    request: SubscribeRequest
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class SessionDocument:
    """A session that is to be opened, parsed."""

    limits: QueueLimits
    conflated: bool
    subscriptions: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """The limits and queue policies of a session."""

    limits: QueueLimits
    conflated: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A parsed change of a subscription; None changes nothing."""

    options: Options | None
    filter_text: str | None
    order_text: str | None
    paused: bool | None


def opening_of(body: bytes, most: QueueLimits, characters_max: int) -> Steps[SessionDocument]:
    """Parse the body of `POST /v1/sessions`, in steps; an empty one sets no field.

    Raises:
        Refused: with the pointer to what is wrong.
    """
    asked = read(SessionOpening, body or b"{}", most=most, characters_max=characters_max)

    def targets_of(piece: Sequence[tuple[int, SubscriptionRequest]]) -> list[Target]:
        return [_target(each, characters_max, f"/subscriptions/{at}") for at, each in piece]

    wanted = list(enumerate(asked.subscriptions))
    targets = yield from in_pieces(wanted, PARSED_AT_ONCE, targets_of)
    limits = most if asked.limits is None else asked.limits.over(most, most)
    return SessionDocument(limits, asked.conflated, tuple(targets))


def tuning_of(body: bytes, now: Tuning, most: QueueLimits) -> Tuning:
    """Parse the body of `PATCH /v1/sessions/{id}`, which changes the limits and policies `now`.

    Raises:
        Refused: with the pointer to what is wrong.
    """
    # By the set fields, as null is a value.
    asked = _changed(read(SessionTuning, body, most=most))
    named = asked.model_fields_set
    conflated = asked.conflated is not False if "conflated" in named else now.conflated
    limits = now.limits
    if "limits" in named:
        limits = most if asked.limits is None else asked.limits.over(limits, most)
    return Tuning(limits, conflated)


def target_of(body: bytes, characters_max: int) -> Target:
    """Parse the body of `POST /v1/sessions/{id}/subscriptions`.

    Raises:
        Refused, EngineError: with the pointer to what is wrong.
    """
    return _target(
        read(SubscriptionRequest, body, characters_max=characters_max), characters_max, ""
    )


def change_of(body: bytes, characters_max: int) -> Change:
    """Parse the body of `PATCH /v1/sessions/{id}/subscriptions/{sub}`.

    `conflation` sets only that option. Null sets what a subscription without the field has. For
    `conflation` it is refused: that would depend on the topic's options.

    Raises:
        Refused, EngineError: with the pointer to what is wrong.
    """
    asked = _changed(read(SubscriptionChange, body, characters_max=characters_max))
    named = {name: getattr(asked, name) for name in asked.model_fields_set}
    said = {name: _UNSAID[name] if it is None else it for name, it in named.items()}
    if "options" in said and "conflation" in said:
        detail = "Give conflation in options or as a field of its own, not both."
        raise Refused("options-invalid", detail, pointer="/conflation")
    options_text = said.get("options")
    if "conflation" in said:
        options_text = f"conflation={_one(said['conflation'])}"
    options = None if options_text is None else Options.parse(options_text, is_change=True)
    if options is not None and options.bookmark is not None:
        detail = "bookmark: only where a subscription begins."
        raise Refused("options-invalid", detail, position=options.positions.get("bookmark"))
    paused = said.get("paused")
    if options is not None and (options.pause or options.resume):
        if paused is not None or (options.pause and options.resume):
            detail = "The subscription is to be paused, or to go on: say one of them once."
            raise Refused("options-invalid", detail, pointer="/paused")
        paused = options.pause
    return Change(options, said.get("filter"), said.get("order_by"), paused)


def _one(conflation: str) -> str:
    if "," in conflation:
        raise Refused("options-invalid", "conflation is one value.", pointer="/conflation")
    return conflation


def _target(asked: SubscriptionRequest, characters_max: int, pointer: str) -> Target:
    topic, texts = asked.topic, asked.model_dump(exclude_unset=True, exclude={"topic"})
    # A position in a text needs the text's place in the body.
    with pointing(pointer):
        request = SubscribeRequest.parse(SubscriptionParameters(**texts), characters_max, many=True)
        is_pattern = "*" in topic or ">" in topic
        target = TopicPattern.parse(topic) if is_pattern else checked_topic_name(topic)
    return Target(target, request, pointer)


@contextmanager
def pointing(pointer: str) -> Iterator[None]:
    """Give each refusal of the block the pointer to this place of the body; "" is the whole of it.

    Raises:
        Refused: with the pointer.
    """
    try:
        yield
    except Refusal as error:
        refusal = refused(error)
        refusal.pointer = refusal.pointer or pointer or None
        raise refusal from None


def _changed(document: Document) -> Document:
    # An empty patch would change nothing, so it is taken for a mistake.
    if not document.model_fields_set:
        known = ", ".join(document.names())
        raise Refused("options-invalid", f"There is nothing to change: {known}.")
    return document
