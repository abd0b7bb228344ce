"""Errors between a client and a gateway.

GatewayError
|- GatewayProblem      the gateway, or a proxy before it, refused, with its reason
|- GatewayUnreachable  no answer, or a lost connection
|  `- StreamLost       a running stream ended, broke off or fell silent
|- AnswerInvalid       an answer, or an event, that no gateway gives
|- TokenUnusable       the token file cannot be read, or there is no token in it
|- PublisherStopped    some messages were not confirmed by an answer
`- CertificateUnusable the file of authorities, or of the client's certificate, cannot be used
"""

from __future__ import annotations

FOREIGN = "http-"
"""Prefix of codes for answers that did not come from a gateway; the HTTP status follows."""

TOO_LARGE = frozenset({413, 414, 431})


class GatewayError(Exception):
    """Base class; `str()` is one readable line."""


def without_traceback(error: Exception) -> Exception:
    """Return an error of another thread or task, ready to be raised in the caller's task or thread.

    Gateway errors drop their traceback because the message suffices; other errors keep it.
    """
    return error.with_traceback(None) if isinstance(error, GatewayError) else error


class TokenUnusable(GatewayError):
    """The token file cannot be read, or the file or function gives no token."""


class PublisherStopped(GatewayError):
    """A publisher could not deliver a batch; `__cause__` is the reason.

    Attributes:
        unsent: the texts of all messages without an answer, in order. The gateway may have accepted
            those of the first batch if its answer was lost.
    """

    def __init__(self, sentence: str, unsent: list[bytes]) -> None:
        super().__init__(sentence, unsent)
        self.unsent = unsent

    def __str__(self) -> str:
        count = len(self.unsent)
        return f"{self.args[0]} ({count} message{'s' * (count != 1)} unsent)"


class CertificateUnusable(GatewayError):
    """The file of trusted authorities, or of the client's own certificate, cannot be used."""


class GatewayProblem(GatewayError):
    """The gateway, or a proxy before it, refused a request.

    Attributes:
        status: the HTTP status.
        code: one of the documented codes, such as `topic-unknown`; `http-502` and the like where
            the answer did not come from a gateway but, for example, from a proxy.
        title: the kind of refusal in words.
        detail: this refusal in words; may be empty.
        position: 0-based character of the fault in the options or the filter, if known.
        line: 1-based line of the fault in a publish request, if known.
        retry_after_s: how long to wait before the next attempt, if the gateway asks for it.
        about: what was refused, such as `topic prices`; empty where the request names nothing.
        pointer: the field of a document that is wrong, such as `/priority`; empty without one.
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
        about: str = "",
        pointer: str = "",
    ) -> None:
        # Python builds a copied or pickled exception again from these arguments.
        super().__init__(status, code, title, detail, position, line, retry_after_s, about, pointer)
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.position = position
        self.line = line
        self.retry_after_s = retry_after_s
        self.about = about
        self.pointer = pointer

    @property
    def is_proxy_outage(self) -> bool:
        """True for a proxy's error that may pass, such as one while the gateway restarts.

        False if the proxy finds the request too large: that does not pass.
        """
        return self.code.startswith(FOREIGN) and self.status not in TOO_LARGE

    def __str__(self) -> str:
        # The detail of `topic-unknown` names the topic already.
        adds_nothing = not self.about or self.about in self.detail
        where = "" if adds_nothing else f", {self.about}"
        where += f", field {self.pointer}" if self.pointer else ""
        where += "" if self.line is None else f", line {self.line}"
        where += "" if self.position is None else f", position {self.position}"
        detail = f": {self.detail}" if self.detail else ""
        # One line, even if a proxy's answer has several: logs and terminals expect lines.
        return " ".join(f"{self.title} [{self.code}{where}]{detail}".split())


class GatewayUnreachable(GatewayError):
    """The connection failed or was lost; the text names the address.

    Attributes:
        was_reached: a gateway answered at this address before, or may have received this request.
        tries_next_address: the request was not sent, or changes nothing and was cut off, so it may
            go to another address at once.
        timed_out: the request was sent, and no part of an answer arrived in time. If other requests
            are answered, a proxy buffers the answer to this one.
    """

    was_reached = False
    tries_next_address = False
    timed_out = False


class StreamLost(GatewayUnreachable):
    """A running stream ended unexpectedly; the gateway may still be up."""


class AnswerInvalid(GatewayError):
    """An answer or an event that no gateway gives, such as one of another type or not in UTF-8."""
