"""The listening socket, opened by us so that every accepted connection inherits its options.

With the kernel's defaults a client that stops reading swallows four megabytes before anything
upstream notices; with a low mark for unsent bytes it is a few tens of kilobytes.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator

from app.acceptor import Acceptor
from app.settings import Settings
from app.units import Duration

# Linux knows the option under this number even where this Python has no name for it.
TCP_NOTSENT_LOWAT: int | None = getattr(
    socket, "TCP_NOTSENT_LOWAT", 25 if sys.platform == "linux" else None
)
KEEPALIVE_PROBES = 3


class CannotListen(Exception):
    """The address cannot be had; `str()` is one readable sentence."""


def open_listener(settings: Settings, *, shared: bool = False) -> socket.socket:
    """A bound, listening, non-blocking TCP socket for `settings.host` and `settings.port`.

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
    """A socket that has the address and does not listen, for processes that share it.

    Raises:
        CannotListen: as `open_listener`; or somebody listens there already, be it to share it.
    """
    family, address = _resolve(settings.host, settings.port)
    with socket.socket(family) as alone, _closed_unless_bound(alone, settings):
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(address)
    holder = socket.socket(family)
    with _closed_unless_bound(holder, settings):
        if family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
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


def base_url(listener: socket.socket, host: str) -> str:
    """The address of `listener` as people type it, with the port it really has."""
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise CannotListen(f"Cannot listen on {host}: it is no address of this machine.") from None
    # A name with both families, such as localhost, gets the one every client tries.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address


def _set_options(listener: socket.socket, settings: Settings) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if TCP_NOTSENT_LOWAT is not None:
        listener.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, settings.notsent_lowat_bytes)
    _set_vanished_peer_options(listener, settings.tcp_user_timeout)


def _set_vanished_peer_options(listener: socket.socket, tcp_user_timeout: Duration) -> None:
    """A peer that is unplugged is noticed in about `tcp_user_timeout`, not in a quarter hour."""
    interval_s = max(1, round(tcp_user_timeout.seconds / (KEEPALIVE_PROBES + 1)))
    options = {
        "TCP_USER_TIMEOUT": tcp_user_timeout.ms,
        "TCP_KEEPIDLE": interval_s,
        "TCP_KEEPINTVL": interval_s,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
    }
    for name, value in options.items():
        if (number := getattr(socket, name, None)) is not None:
            with contextlib.suppress(OSError):  # the platform has the name and not the option
                listener.setsockopt(socket.IPPROTO_TCP, number, value)
