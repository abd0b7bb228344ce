"""Errors between a client and a gateway.

GatewayError
|- GatewayProblem      the gateway refused, with its reason (RFC 9457)
|- GatewayUnreachable  no answer, or a lost connection
|  `- StreamLost       a running stream ended, broke off or fell silent
|- AnswerInvalid       the answer is not one of a gateway
`- TokenUnusable       the file of the token cannot be read
"""

from __future__ import annotations


class GatewayError(Exception):
    """Base: `str()` is one readable line."""


class TokenUnusable(GatewayError):
    """The file of the token cannot be read, or holds none."""


class GatewayProblem(GatewayError):
    """A refusal. `code` is one of the documented codes; `position` counts characters from 0.

    Attributes:
        status: the HTTP status.
        code: for programs, such as `topic-unknown`; `http-502` and the like where the answer came
            from something other than a gateway, such as a proxy.
        title: the kind of refusal in words.
        detail: this refusal in words; may be empty.
        position: 0-based character of the fault in the options or the filter, if known.
        line: 1-based line of the fault in a publish request, if known.
        retry_after_s: how long to wait before the next attempt, if the gateway asks for it.
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
        # Python builds a copied or pickled exception again from these arguments.
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
        # On one line, whatever a proxy has put into its answer: logs and terminals take lines.
        return " ".join(f"{self.title} [{self.code}{where}]{detail}".split())


class GatewayUnreachable(GatewayError):
    """No connection, or a lost one; the text names the address.

    `was_reached`: a gateway has answered there before, or may have received this request.
    """

    was_reached = False


class StreamLost(GatewayUnreachable):
    """A stream ended that should go on; the gateway may still be up."""


class AnswerInvalid(GatewayError):
    """Another content type, bytes that are not UTF-8, or an event above the size limit."""
