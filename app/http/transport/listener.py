"""The listening socket: its options, and how many connections it accepts in an iteration.

Accepted connections inherit the options. With the kernel's defaults a client that stops reading
swallows four megabytes before the gateway notices; with a low mark for unsent bytes it is a few
tens of kilobytes.
"""

import contextlib
import errno
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from tidegate.app.http.admission import WAITING_CONNECTIONS_MAX
from tidegate.app.logs import event
from tidegate.app.settings.settings import Settings
from tidegate.keys.text.duration import Duration

if sys.platform != "win32":
    import resource

# asyncio keeps retrying for each waiting connection when descriptors run out, with a log line and a
# timer for each, and the clients wait unanswered. The acceptor refuses them at once instead.
# So many in a row, some 80 us each: a storm of connections must not delay those that are served.
# One while openings of streams wait: those that wait have a parser and a buffer each.
ACCEPTED_IN_A_ROW_MAX: Final = 4
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})

logger = logging.getLogger("tidegate.connections")


class Acceptor(socket.socket):
    """Accepts a few connections at a time; one spare descriptor serves to refuse with.

    Attributes:
        crowd: how many wait already.
    """

    def __init__(self, family: socket.AddressFamily) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._spare: int | None = _open_spare()
        self.crowd: Callable[[], int] = int
        self._accepted_in_a_row = 0
        self._is_out = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection; return it with its address.

        Raises:
            BlockingIOError: none is waiting, or other work of the loop is to run first.
        """
        if self._accepted_in_a_row >= max(1, ACCEPTED_IN_A_ROW_MAX - self.crowd()):
            self._accepted_in_a_row = 0
            raise BlockingIOError
        try:
            accepted = super().accept()
        except OSError as error:
            self._accepted_in_a_row = 0
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
            self._turn_one_away()
            raise BlockingIOError from None
        self._accepted_in_a_row += 1
        self._is_out = False
        return accepted

    def close(self) -> None:
        """Close the socket and let the spare descriptor go."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        super().close()

    def _turn_one_away(self) -> None:
        if not self._is_out:
            logger.warning(
                "file descriptors have run out: connections are refused",
                extra=event("descriptors-out"),
            )
            self._is_out = True
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        with contextlib.suppress(OSError):  # another process accepted it, or the client has left
            super().accept()[0].close()
        with contextlib.suppress(OSError):
            self._spare = _open_spare()


def _open_spare() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


# Linux knows the option under this number even where this Python has no name for it.
TCP_NOTSENT_LOWAT: int | None = getattr(
    socket, "TCP_NOTSENT_LOWAT", 25 if sys.platform == "linux" else None
)
KEEPALIVE_PROBES = 3
EVERY_ADDRESS = "::"


class CannotListen(Exception):
    """The address cannot be had; `str()` is one readable sentence."""


def open_listener(settings: Settings, *, shared: bool = False) -> socket.socket:
    """Return a bound, listening, non-blocking socket for `settings.host` and `settings.port`.

    `shared`: other processes of the same user may listen there too, and the kernel spreads
    connections over them.

    Raises:
        CannotListen: the address is taken, not ours, or no address.
    """
    family, address = _resolve(settings.host, settings.port)
    listener = Acceptor(family)
    with _closed_unless_bound(listener, settings):
        _set_options(listener, settings)
        if shared:
            _share_port(listener)
        listener.bind(address)
        listener.listen(settings.backlog)
        listener.setblocking(False)
    return listener


def hold_address(settings: Settings) -> socket.socket:
    """Bind the address without listening, for processes that share it.

    Raises:
        CannotListen: as `open_listener`; or another process listens there, even on a shared port.
    """
    family, address = _resolve(settings.host, settings.port)
    with socket.socket(family) as alone, _closed_unless_bound(alone, settings):
        _choose_families(alone, settings)
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(address)
    holder = socket.socket(family)
    with _closed_unless_bound(holder, settings):
        _choose_families(holder, settings)
        _share_port(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections may linger there
        holder.bind(address)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return holder


@contextlib.contextmanager
def _closed_unless_bound(bound: socket.socket, settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        bound.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        where = f"{settings.host} port {settings.port}"
        raise CannotListen(f"Cannot listen on {where}: {reason.lower()}.") from None


def _share_port(bound: socket.socket) -> None:
    option: int | None = getattr(socket, "SO_REUSEPORT", None)
    if option is None:
        raise CannotListen("Cannot listen with several workers: this system has no shared ports.")
    bound.setsockopt(socket.SOL_SOCKET, option, 1)


def base_url(listener: socket.socket, settings: Settings) -> str:
    """Return the URL of `listener`, with its actual port."""
    scheme = "http" if settings.tls_cert is None else "https"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise CannotListen(
            f"Cannot listen on {host}: it is not an address of this machine."
        ) from None
    # A name with both families, such as localhost, gets the one every client tries.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address


def _choose_families(bound: socket.socket, settings: Settings) -> None:
    """Let a socket of IPv6 take IPv4 too at the wildcard, whatever the system does."""
    if bound.family == socket.AF_INET6:
        is_one = settings.host != EVERY_ADDRESS
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(is_one))


def _set_options(listener: socket.socket, settings: Settings) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _choose_families(listener, settings)
    if TCP_NOTSENT_LOWAT is not None:
        listener.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, settings.notsent_lowat_bytes)
    _set_keepalive(listener, settings.tcp_keepalive)


def _set_keepalive(listener: socket.socket, tcp_keepalive: Duration) -> None:
    """Detect a peer that is unplugged while idle, in about `tcp_keepalive`.

    While bytes are under way, the write watch checks that the peer takes them. TCP_USER_TIMEOUT
    stays unset: Linux resets its count only when a whole segment fits the peer's window, so it
    would cut a peer that reads steadily through a small one.
    """
    interval_s = max(1, round(tcp_keepalive.seconds / (KEEPALIVE_PROBES + 1)))
    options = {
        "TCP_KEEPIDLE": interval_s,
        "TCP_KEEPINTVL": interval_s,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
    }
    for name, value in options.items():
        if (number := getattr(socket, name, None)) is not None:
            with contextlib.suppress(OSError):  # the platform has the name and not the option
                listener.setsockopt(socket.IPPROTO_TCP, number, value)


# A process without free descriptors can neither accept nor open its own files. So the limit of
# connections stays below what descriptors allow, with some to spare.
# Files and sockets of the gateway itself, and connections accepted but not counted yet.
OTHER_DESCRIPTORS: Final = 96


def connections_that_fit(connections_max: int) -> int:
    """Return how many connections the descriptors allow: `connections_max` at most, 1 at least."""
    if sys.platform == "win32":
        return connections_max
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections_max
    return max(1, min(connections_max, soft - WAITING_CONNECTIONS_MAX - OTHER_DESCRIPTORS))


def ask_for_descriptors(connections_max: int) -> None:
    """Raise this process's soft limit as far as `connections_max` needs and the hard one allows."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections_max + WAITING_CONNECTIONS_MAX + OTHER_DESCRIPTORS
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
