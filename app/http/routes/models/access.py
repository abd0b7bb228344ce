"""What `/v1/login` and `/v1/tickets` take and answer."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from tidegate.app.documents import Strict

TOKEN_CHARACTERS_MAX = 8192


class Login(Strict):
    """A token to be kept in the cookie."""

    code: ClassVar[str] = "message-invalid"

    token: Annotated[str, Field(max_length=TOKEN_CHARACTERS_MAX, description="A JWT")]


class GrantShown(TypedDict):
    """What may be done with the topics of a pattern."""

    topics: str
    can: list[str]
    filter: NotRequired[str]
    select: NotRequired[str]


class LoginAnswer(TypedDict):
    """The subject of a token."""

    sub: str
    expires_ms: int
    grants: list[GrantShown]
    csrf: NotRequired[
        Annotated[str, Field(description="Send it as Tidegate-CSRF with changes by cookie")]
    ]
    logout: NotRequired[
        Annotated[str, Field(description="Where to log out at the identity provider, too")]
    ]


class IssuedTicket(TypedDict):
    """A ticket for one stream, as `?ticket=`."""

    ticket: str
    expires_ms: Annotated[int, Field(description="Void from then on, unless it was used")]


SENT: tuple[Any, ...] = (Login,)
ANSWERED: tuple[Any, ...] = (GrantShown, LoginAnswer, IssuedTicket)
