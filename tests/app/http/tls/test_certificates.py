"""The settings of OpenSSL: versions, certificates of the gateway and of its clients."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.http.tls.pairs import DEADLINE_S, Connect, Settled
from tests.support.certificates import Authority, Signed
from tidegate.app.http.transport.certificates import Certificates
from tidegate.app.http.transport.tls import Handshakes


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_old_versions_are_refused_whatever_the_system_allows(
    handshakes: Handshakes, version: ssl.TLSVersion
) -> None:
    assert version < handshakes.certificates.context.minimum_version


async def test_a_client_of_tls_1_2_cannot_have_it_compute_handshakes(
    connect: Connect, authority: Authority, handshakes: Handshakes
) -> None:
    """Python's client cannot ask for another handshake; the option is what refuses it."""
    older = authority.trusting()
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    pair = connect(older)
    pair.complete_handshake()
    pair.send(b"a")
    assert pair.inner.received == b"a"
    context = handshakes.certificates.context
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert all("ECDHE" in it["name"] or "TLS_" in it["name"] for it in context.get_ciphers())
    # Nor can it compress, which tells of what is inside.
    assert context.options & ssl.OP_NO_COMPRESSION


async def test_a_client_that_also_speaks_http_2_is_answered_in_http_1_1(
    connect: Connect, authority: Authority
) -> None:
    both = authority.trusting()
    both.set_alpn_protocols(["h2", "http/1.1"])
    pair = connect(both)
    pair.complete_handshake()
    assert pair.client.selected_alpn_protocol() == "http/1.1"


async def test_the_certificate_of_a_connection_is_that_of_its_beginning(
    connect: Connect, authority: Authority, handshakes: Handshakes, signed: Signed
) -> None:
    before = connect()
    newer = authority.server("newer")
    signed.cert.write_bytes(newer.cert.read_bytes())
    signed.key.write_bytes(newer.key.read_bytes())
    handshakes.certificates.reload()
    after = connect()
    numbers = []
    for pair in (before, after):
        pair.complete_handshake()
        shown = pair.client.getpeercert()
        assert shown is not None
        numbers.append(int(str(shown["serialNumber"]), 16))
    assert numbers == [signed.number, newer.number]


@pytest.mark.parametrize("broken", ["cert", "key", "gone", "another", "half"])
async def test_files_that_are_broken_at_a_reload_change_nothing(
    connect: Connect, authority: Authority, handshakes: Handshakes, signed: Signed, broken: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    good = handshakes.certificates.context
    match broken:
        case "cert" | "key":
            (signed.cert if broken == "cert" else signed.key).write_text("nothing")
        case "gone":
            signed.key.unlink()
        case "another":  # the new certificate is there already, its key not yet
            signed.cert.write_bytes(authority.server("newer").cert.read_bytes())
        case "half":
            signed.cert.write_bytes(signed.cert.read_bytes()[:200])
    handshakes.certificates.reload()
    assert handshakes.certificates.context is good
    [record] = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "tidegate.tls")
    pair = connect()
    pair.complete_handshake()
    assert pair.made == 1


# --- Certificates of clients


@pytest.fixture
def asking(settled: Settled, authority: Authority) -> Callable[..., Handshakes]:
    def make(how: str = "optional", trusted: Authority = authority) -> Handshakes:
        more = {"tls_client_ca": str(trusted.cert), "tls_client_auth": how}
        return Handshakes(Certificates(settled(**more)), DEADLINE_S, set())

    return make


async def test_a_client_is_known_by_its_certificate(
    connect: Connect, asking: Callable[..., Handshakes], authority: Authority
) -> None:
    pair = connect(authority.trusting(authority.client("feed-1")), asking())
    pair.complete_handshake()
    assert pair.tls.get_extra_info("tidegate.certificate").name == "feed-1"
    nobody = connect(given=asking())
    nobody.complete_handshake()
    assert nobody.tls.get_extra_info("tidegate.certificate") is None


@pytest.mark.parametrize("how", ["optional", "required"])
@pytest.mark.parametrize("fault", ["expired", "of another authority", "of a server"])
async def test_a_certificate_that_is_not_right_ends_the_handshake(
    connect: Connect, asking: Callable[..., Handshakes], authority: Authority, tmp_path: Path,
    fault: str, how: str,
) -> None:  # fmt: skip
    """Also where none is needed: whoever shows one has to be who it names."""
    match fault:
        case "expired":
            shown = authority.client("feed-1", life=-datetime.timedelta(minutes=1))
        case "of another authority":
            shown = Authority(tmp_path, "Another").client("feed-1")
        case _:
            shown = authority.server("feed-1")
    pair = connect(authority.trusting(shown), asking(how))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        pair.complete_and_read()
    assert not pair.made
    assert pair.plain.calls == ["close"]


async def test_without_a_certificate_no_handshake_ends_well_where_one_is_required(
    connect: Connect, asking: Callable[..., Handshakes]
) -> None:
    pair = connect(given=asking("required"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        pair.complete_and_read()
    assert not pair.made
