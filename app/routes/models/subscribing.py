"""What a request to subscribe may say, in its query or as a JSON object of texts."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from tidegate.app.delivery.encoding import Format
from tidegate.app.http.parameters import (
    EVENT_ID,
    LAST_EVENT_ID,
    TOPIC_TEXT,
    Headers,
    Parameters,
    text,
)
from tidegate.conflation.subscription import Command

_COMMAND = text(enum=[str(command) for command in Command])
_FORMAT = text(enum=[str(form) for form in Format])


class Asked(Parameters):
    """What of a topic, and how."""

    model_config = ConfigDict(extra="forbid")

    options: Annotated[
        str | None, text(), Field(description="conflation=1s,conflation_key=[/a],pace=batch")
    ] = None
    filter: Annotated[
        str | None,
        text("filter-invalid"),
        Field(description="Which messages: AMPS's filter language"),
    ] = None
    order_by: Annotated[
        str | None, text(), Field(description="Order of snapshot rows and windows: /a DESC,/b")
    ] = None
    command: Annotated[
        str | None, _COMMAND, Field(description="sow_and_subscribe on a topic with a key")
    ] = None
    format: Annotated[
        str | None, _FORMAT, Field(description="value, but envelope where options need it")
    ] = None


class Subscribing(Asked):
    """The same, and where to go on."""

    last_event_id: Annotated[
        str | None, EVENT_ID, Field(description="Continue behind it, as Last-Event-ID")
    ] = None
    bookmarks: Annotated[
        str | None,
        text("bookmark-invalid"),
        Field(description="A pattern's topics behind these: px.eur=e1-7,px.usd=e2-9"),
    ] = None


class Explaining(Asked):
    """The same, and of which topic."""

    topic: Annotated[str, TOPIC_TEXT, Field(description="The topic's name")]


class Continued(Headers):
    """The place of a reader that comes back."""

    last_event_id: Annotated[str | None, LAST_EVENT_ID, Field(description="Continue behind it")] = (
        None
    )


SENT = (Subscribing, Explaining)
