"""What can go wrong between a client and a gateway.

GatewayError
|- GatewayProblem      the gateway said no, and why (RFC 9457)
|- GatewayUnreachable  nobody answered there, or the connection was lost
|  `- StreamLost       a stream that had begun ended, broke off or fell silent
`- AnswerInvalid       what answered there is no gateway, or spoke nonsense
"""

from __future__ import annotations


class GatewayError(Exception):
    """Base: `str()` is one readable line."""


class GatewayProblem(GatewayError):
    """A refusal. `code` is one of the documented codes; `position` counts characters from 0.

    Attributes:
        status: the HTTP status.
        code: what a program decides by, such as `topic-unknown`; `http-502` and the like where the
            answer came from something other than a gateway.
        title: the kind of refusal in words.
        detail: this refusal in words; may be empty.
        position: 0-based character in the options or the filter that is at fault, if it is one.
        line: 1-based line of a publish request that is at fault, if it is one.
        retry_after_s: how long to wait before asking again, where the gateway said so.
    """

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str = "",
        position: int | None = None,
        line: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(status, code, title, detail, position, line)
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.position = position
        self.line = line
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        where = "" if self.line is None else f", line {self.line}"
        where += "" if self.position is None else f", position {self.position}"
        detail = f": {self.detail}" if self.detail else ""
        return " ".join(f"{self.title} [{self.code}{where}]{detail}".split())


class GatewayUnreachable(GatewayError):
    """No connection, or none that lasted; the text names the address.

    `was_reached`: a gateway has answered there before, or may have taken this request.
    """

    was_reached = False


class StreamLost(GatewayUnreachable):
    """A stream is over that should go on; the gateway may still be there."""


class AnswerInvalid(GatewayError):
    """Another content type, bytes that are no UTF-8, an event beyond all bounds."""
