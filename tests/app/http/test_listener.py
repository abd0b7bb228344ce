"""The listening socket and what accepted connections inherit from it."""

import socket
from contextlib import closing

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.servers import edge_settings
from tidegate.app.http.transport.listener import (
    TCP_NOTSENT_LOWAT,
    CannotListen,
    base_url,
    hold_address,
    open_listener,
)


def test_accepted_connections_inherit_the_options() -> None:
    settings = edge_settings(notsent_lowat_bytes="24KiB", tcp_keepalive="17s")
    with closing(open_listener(settings)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        with closing(client), closing(accepted):
            assert TCP_NOTSENT_LOWAT is not None
            assert accepted.getsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT) == 24 << 10
            assert not accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 4


def test_port_zero_takes_a_free_one() -> None:
    settings = edge_settings()
    with closing(open_listener(settings)) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert base_url(listener, settings) == f"http://127.0.0.1:{port}"


def test_an_ipv6_address_is_written_in_brackets() -> None:
    with closing(open_listener(edge_settings())) as listener:
        at_ipv6 = edge_settings(host="::1")
        assert base_url(listener, at_ipv6) == f"http://[::1]:{listener.getsockname()[1]}"


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_the_wildcard_of_ipv6_takes_both_families() -> None:
    settings = edge_settings(host="[::]", insecure=True)
    assert settings.host == "::"
    try:
        listener = open_listener(settings)
    except CannotListen:  # a machine without IPv6
        assert not has_ipv6()
        return
    with closing(listener):
        port = listener.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            with socket.create_connection((address, port)):
                accepted, peer = listener.accept()
                accepted.close()
                assert peer[0].removeprefix("::ffff:") == address


def test_localhost_is_the_address_every_client_tries() -> None:
    with closing(open_listener(edge_settings(host="localhost"))) as listener:
        assert listener.family == socket.AF_INET


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("203.0.113.7", "cannot assign requested address"),
        ("no-such-host.invalid", "not an address of this machine"),
        ("bad..host", "not an address of this machine"),
    ],
)
def test_an_address_that_cannot_be_had_is_one_sentence(host: str, reason: str) -> None:
    with pytest.raises(CannotListen) as raised:
        open_listener(edge_settings(host=host, insecure=True))
    assert reason in str(raised.value)
    assert str(raised.value).count("\n") == 0


def test_a_taken_port_is_one_sentence() -> None:
    with closing(open_listener(edge_settings())) as first:
        port = first.getsockname()[1]
        with pytest.raises(CannotListen) as raised:
            open_listener(edge_settings(port=port))
    assert str(raised.value) == (f"Cannot listen on 127.0.0.1 port {port}: address already in use.")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_that_is_held_is_shared_by_all_that_ask_for_it(host: str) -> None:
    with closing(hold_address(edge_settings(host=host))) as holder:
        settings = edge_settings(host=host, port=holder.getsockname()[1])
        with (
            closing(open_listener(settings, shared=True)) as one,
            closing(open_listener(settings, shared=True)) as two,
        ):
            assert one.getsockname() == two.getsockname() == holder.getsockname()
            for _ in range(20):
                socket.create_connection(one.getsockname()[:2], timeout=HANGS_S).close()
        with pytest.raises(CannotListen, match="already in use"):
            open_listener(settings)


def test_an_address_is_held_on_which_old_connections_linger() -> None:
    """As after a gateway that was killed with streams open."""
    with closing(open_listener(edge_settings())) as before:
        address = before.getsockname()
        with closing(socket.create_connection(address[:2], timeout=HANGS_S)):
            accepted, _ = before.accept()
            accepted.close()  # who closes first keeps the address for a while
    with closing(hold_address(edge_settings(port=address[1]))) as holder:
        assert holder.getsockname() == address


@pytest.mark.parametrize("shared", [False, True])
def test_an_address_where_somebody_listens_is_not_held(shared: bool) -> None:
    with closing(open_listener(edge_settings(), shared=shared)) as first:
        taken = edge_settings(port=first.getsockname()[1])
        with pytest.raises(CannotListen, match="already in use"):
            hold_address(taken)
