"""Keys and tokens of one's own, and the clients that send them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.support.commands import serving_here
from tests.support.gateways import running_gateway
from tests.support.tokens import claims, grant, public_jwk, signed, write_keys
from tidegate.app.cli.main import main
from tidegate.clients.errors import GatewayProblem, TokenUnusable
from tidegate.clients.gateway import Gateway
from tidegate.clients.token import Token
from tidegate.pipeline.command import pipeline


def run(*words: str) -> int:
    return main(["token", *words])


@pytest.mark.parametrize("algorithm", ["EdDSA", "HS256"])
async def test_a_token_of_the_local_key_is_taken(
    algorithm: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("key", "--algorithm", algorithm) == 0
    for name in ("tidegate-key.json", "tidegate-keys.json"):
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
    assert ("d" in json.loads(Path("tidegate-keys.json").read_text())["keys"][0]) is False
    assert run("key") == 2  # never over a key that is there
    capsys.readouterr()
    words = [
        "--sub",
        "ann",
        "--grant",
        "read,admin px.>",
        "--grant",
        '{"topics":"a","can":["read"]}',
    ]
    assert run("create", *words, "--for", "8h", "--claim", "groups=a", "--claim", "groups=b") == 0
    token = capsys.readouterr().out.strip()
    async with running_gateway(auth_keys="tidegate-keys.json") as running:
        headers = {"Authorization": f"Bearer {token}"}
        answer = await running.http.put("/v1/topics/px.eu", json={}, headers=headers)
        assert answer.status_code == 201


def test_a_slip_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (
        ["create", "--sub", "a"],
        ["create", "--sub", "a", "--grant", "read"],
        ["create", "--sub", "a", "--claim", "x"],
        ["key", "--algorithm", "none"],
    ):
        assert run(*words) == 2
    public = public_jwk("EdDSA")
    for text in ('{"k": "secret-text"}', "[]", json.dumps({**public, "kid": "secret-text"})):
        Path("tidegate-key.json").write_text(text)
        assert run("create", "--sub", "a") == 2, text
    said = capsys.readouterr()
    assert "secret-text" not in said.err + said.out
    assert "Traceback" not in said.err


def test_a_key_needs_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("key") == 0
    key = Path("tidegate-key.json")
    document = json.loads(key.read_text())
    del document["kid"]
    key.write_text(json.dumps(document))
    assert run("create", "--sub", "a") == 0


def test_a_client_shows_its_token_nowhere(tmp_path: Path) -> None:
    secret = "abc.def.ghi"
    file = tmp_path / "token"
    file.write_text(secret + "\n")
    for token in (Token(secret), Token(file=file), Token()):
        assert secret not in repr(token) + str(token) + repr(vars(Gateway(token=token)))
    with pytest.raises(ValueError, match="one word") as caught:
        Token("abc def\r\nX: y")
    assert "abc" not in str(caught.value)


def test_a_client_sends_the_token_of_its_environment_or_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    good = signed(claims("ann", grant("read,admin px")))
    file = tmp_path / "token"
    with serving_here(auth_keys=keys) as address:

        def topics() -> list[object]:
            with Gateway(address) as gateway:
                return list(gateway.topics())

        with pytest.raises(GatewayProblem, match="token"):
            topics()
        monkeypatch.setenv("TIDEGATE_TOKEN", good)
        assert topics() == []
        monkeypatch.delenv("TIDEGATE_TOKEN")
        monkeypatch.setenv("TIDEGATE_TOKEN_FILE", str(file))
        with pytest.raises(TokenUnusable, match="No such file"):
            topics()
        file.write_text(good)
        assert topics() == []
        monkeypatch.delenv("TIDEGATE_TOKEN_FILE")
        words = ["topics", "list", "--gateway", address]
        assert main(words) == 1
        assert main([*words, "--token-file", str(file)]) == 0
        file.write_text("two words")
        assert main([*words, "--token-file", str(file)]) == 78


def test_the_pipeline_gets_the_file_by_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("abc.def.ghi")
    monkeypatch.setenv("TIDEGATE_TOKEN_FILE", "")
    words = ["replay", "x", "--topic", "t", "--token-file", str(file)]
    verb = pipeline.commands["replay"]
    verb.make_context("replay", words[1:])
    assert os.environ["TIDEGATE_TOKEN_FILE"] == str(file)
