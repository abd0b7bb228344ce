"""A line to a gateway that is not there goes on once there is one."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from tests.clients.support.wire import wire_to
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port


def test_connections_are_closed_while_no_server_is_there_and_carried_again_after() -> None:
    port = lasting_port()
    with wire_to(f"http://127.0.0.1:{port}") as wire:
        at = ("127.0.0.1", urlsplit(wire.address).port)
        for _ in range(2):
            with socket.create_connection(at, HANGS_S) as client:
                assert client.recv(1) == b""
        with (
            socket.create_server(("127.0.0.1", port)) as server,
            socket.create_connection(at, HANGS_S) as client,
        ):
            far, _ = server.accept()
            with far:
                far.sendall(b"x")
                assert client.recv(1) == b"x"
