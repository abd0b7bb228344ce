"""TLS as it is set up: what is refused at the start, and what clients need."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Signed
from tests.support.commands import Ended, call
from tests.support.gateways import gateway_over_tls
from tidegate.clients.gateway import Gateway as Client

# --- Configuration


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("missing", "tls_cert: {folder}/missing.pem: cannot be read: no such file or directory"),
        ("text", "tls_cert: {folder}/text.pem: no certificate in PEM"),
        ("key-of-another", "not the certificate's key"),
        ("no-key", "no certificate with its key in PEM"),
        ("encrypted", "tls_key: {folder}/encrypted.key: the key is encrypted"),
        ("key-alone", "tls_key has no effect without tls_cert"),
    ],
)
def test_what_cannot_be_used_ends_the_command_with_a_sentence(
    authority: Authority, server: Signed, tmp_path: Path, given: str, sentence: str
) -> None:
    (tmp_path / "text.pem").write_text("text")
    flags = {
        "missing": ["--tls-cert", str(tmp_path / "missing.pem")],
        "text": ["--tls-cert", str(tmp_path / "text.pem"), "--tls-key", str(server.key)],
        "key-of-another": [
            "--tls-cert", str(server.cert), "--tls-key", str(authority.server("b").key),
        ],
        "no-key": ["--tls-cert", str(server.cert)],
        "encrypted": [
            "--tls-cert", str(server.cert), "--tls-key", str(_encrypted(server.key, tmp_path)),
        ],
        "key-alone": ["--tls-key", str(server.key)],
    }[given]  # fmt: skip
    done = call("serve", "--port", "0", "--data", ":memory:", *flags)
    assert done.code == 78, done.err
    assert len(done.err.splitlines()) == 1
    assert sentence.format(folder=tmp_path) in done.err


def _encrypted(key: Path, folder: Path) -> Path:
    from cryptography.hazmat.primitives import serialization

    made = folder / "encrypted.key"
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    made.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    return made


def test_tls_alone_opens_no_address_that_others_can_reach(server: Signed) -> None:
    listens = ("--host", "0.0.0.0", "--port", "0", "--data", ":memory:")
    done = call("serve", *listens, "--tls-cert", str(server.both))
    assert done.code == 78
    assert "no authentication" in done.err


# --- Clients


@pytest.mark.system
async def test_the_command_line_and_the_client_trust_a_named_authority(
    authority: Authority, server: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway_over_tls(authority, server) as gateway:
        await gateway.topic()
        trusting = {"SSL_CERT_FILE": str(authority.cert), "TIDEGATE_GATEWAY": gateway.address}

        async def run(variables: dict[str, str], *words: str, stdin: bytes = b"") -> Ended:
            return await asyncio.to_thread(call, *words, stdin=stdin, **variables)

        done = await run(trusting, "publish", "px", "-", stdin=b'{"k": 1, "v": 7}\n')
        assert done.code == 0, done.err
        done = await run(trusting, "subscribe", "px", "--count", "1")
        assert json.loads(done.out)["v"] == 7, done.err

        done = await run({"TIDEGATE_GATEWAY": gateway.address}, "sow", "px")
        assert done.code == 3
        assert "certificate verify failed" in done.err

        plain = gateway.address.replace("https", "http")
        done = await run({**trusting, "TIDEGATE_GATEWAY": plain}, "sow", "px")
        assert done.code == 1
        assert "speaks TLS" in done.err

        monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))

        def newest() -> str:
            with Client(gateway.address) as client, client.subscribe("px") as subscription:
                return next(event.text for event in subscription if event.name == "message")

        assert json.loads(await asyncio.to_thread(newest))["v"] == 7
