"""The layers around the application, in their order."""

import pytest

from tests.support.network.edge_app import edge_app
from tests.support.servers import edge_settings, running_server
from tests.support.wire import exchange, request


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(request("/", host="evil.example"), "host-not-allowed", id="B77-host"),
        pytest.param(request("/v1/topics/a%2Fsow"), "topic-invalid", id="B38-path"),
        pytest.param(request("/broken"), "internal", id="error-in-a-route"),
    ],
)
async def test_what_an_inner_layer_refuses_the_outer_ones_answer_and_protect(
    raw: bytes, code: str
) -> None:
    async with running_server(edge_app(edge_settings())) as address:
        answer = await exchange(address, raw)
    assert answer.code == code
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_address_listened_on_is_a_host_and_a_wildcard_is_none() -> None:
    """Pages of other sites can name 0.0.0.0 to reach this machine."""
    for host, status in (("127.0.0.2", 200), ("0.0.0.0", 421)):
        settings = edge_settings(host=host, insecure=True)
        async with running_server(edge_app(settings), settings) as address:
            assert (await exchange(address, request("/", host=host))).status == status
