"""TLS as it is set up: what is refused at the start, and what clients need."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Signed
from tests.support.children import COMMAND
from tests.support.deadlines import HANGS_S
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
        ("key-alone", "tls_key is the key of a certificate, and needs tls_cert (--tls-cert)"),
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
    command = [str(COMMAND), "serve", "--port", "0", "--data", ":memory:", *flags]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HANGS_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 78, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sentence.format(folder=tmp_path) in done.stderr


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
    command = [str(COMMAND), "serve", "--host", "0.0.0.0", "--port", "0", "--data", ":memory:"]
    command += ["--tls-cert", str(server.both)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S)
    assert done.returncode == 78
    assert "no authentication" in done.stderr


# --- Clients


async def test_the_command_line_and_the_client_trust_a_named_authority(
    authority: Authority, server: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway_over_tls(authority, server) as gateway:
        await gateway.topic()
        trusting = {**os.environ, "SSL_CERT_FILE": str(authority.cert)}
        trusting["TIDEGATE_GATEWAY"] = gateway.address
        done = await asyncio.to_thread(
            subprocess.run, [str(COMMAND), "publish", "px", "-"],
            input=b'{"k": 1, "v": 7}\n', env=trusting, capture_output=True, timeout=HANGS_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        command = [str(COMMAND), "subscribe", "px", "--count", "1"]
        done = await asyncio.to_thread(
            subprocess.run, command, env=trusting, capture_output=True, timeout=HANGS_S
        )
        assert json.loads(done.stdout)["v"] == 7, done.stderr

        doubting = {name: value for name, value in trusting.items() if name != "SSL_CERT_FILE"}
        done = await asyncio.to_thread(
            subprocess.run, [str(COMMAND), "sow", "px"],
            env=doubting, capture_output=True, timeout=HANGS_S,
        )  # fmt: skip
        assert done.returncode == 3
        assert b"certificate verify failed" in done.stderr

        plain = {**trusting, "TIDEGATE_GATEWAY": gateway.address.replace("https", "http")}
        done = await asyncio.to_thread(
            subprocess.run, [str(COMMAND), "sow", "px"],
            env=plain, capture_output=True, timeout=HANGS_S,
        )  # fmt: skip
        assert done.returncode == 1
        assert b"speaks TLS" in done.stderr

        monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))

        def newest() -> str:
            with Client(gateway.address) as client, client.subscribe("px") as subscription:
                return next(event.text for event in subscription if event.name == "message")

        assert json.loads(await asyncio.to_thread(newest))["v"] == 7
