"""Arguments with units and bounds."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tests.support.commands import call, parsed
from tidegate.app.cli.arguments import COUNT, PORT, SECONDS, connect


def test_what_is_taken() -> None:
    read = [SECONDS(text) for text in ("10s", "500ms", "2M")]
    assert read == [10.0, 0.5, 120.0]
    assert COUNT("1") == 1
    assert [PORT(text) for text in ("0", "65535")] == [0, 65535]


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (SECONDS, "10"),
        (SECONDS, "-1s"),
        (SECONDS, "1.5s"),
        (COUNT, "0"),
        (COUNT, "-1"),
        (COUNT, "1e3"),
        (COUNT, "²"),
        (PORT, "65536"),
        (PORT, "http"),
    ],
)
def test_what_is_not(read: click.ParamType[float], text: str) -> None:
    with pytest.raises(click.BadParameter):
        read(text)


@pytest.mark.parametrize(
    "words",
    [
        "publish px --rate 100 ticks.ndjson",
        "publish px ticks.ndjson --rate 100",
        "publish --rate 100 px ticks.ndjson",
    ],
)
def test_options_stand_before_between_or_behind(words: str) -> None:
    found = parsed(*words.split())
    assert found.info_name == "publish"
    given = found.params
    assert (given["topic"], given["file"], given["rate"]) == ("px", "ticks.ndjson", "100")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("publish px a b", "extra argument .?b"),
        ("publish px --rat 100 a", "No such option .?--rat.*Did you mean .?--rate"),
        ("publish --rate 100", "Missing argument .?TOPIC"),
        ("publish px a --rate", "requires an argument"),
    ],
)
def test_what_is_no_argument_is_still_none(words: str, said: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        parsed(*words.split())
    assert re.search(said, refused.value.format_message())


def test_an_address_becomes_a_client_that_has_sent_nothing() -> None:
    with connect("http://127.0.0.1:1/") as gateway:
        assert gateway.base_url == "http://127.0.0.1:1"


def test_what_is_no_address_is_wrong_usage() -> None:
    with pytest.raises(click.BadParameter, match="expected an address such as"):
        connect("127.0.0.1")


GATEWAY_VERBS = [
    "publish t", "subscribe t", "sow t", "explain t", "top", "topics list", "topics show t",
    "topics create t", "topics update t", "topics delete t", "sessions list", "sessions show s",
    "sessions close s", "sessions conflate s on", "pipeline journal t --to a",
    "pipeline replay a --topic t",
]  # fmt: skip


@pytest.mark.parametrize("words", GATEWAY_VERBS)
def test_the_environment_names_the_gateway_and_the_option_goes_before_it(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.delenv("TIDEGATE_GATEWAY", raising=False)
    assert parsed(*words.split()).params["gateway"] == "http://127.0.0.1:8080"
    monkeypatch.setenv("TIDEGATE_GATEWAY", "http://desk:1")
    assert parsed(*words.split()).params["gateway"] == "http://desk:1"
    given = parsed(*words.split(), "--gateway", "http://other:2")
    assert given.params["gateway"] == "http://other:2"


def test_a_wrong_address_names_the_variable_that_has_it() -> None:
    ended = call("topics", "list", TIDEGATE_GATEWAY="nowhere")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "TIDEGATE_GATEWAY" in ended.err
    assert "--gateway" not in ended.err


CONTEXTS = """
[prod]
gateway = ["http://127.0.0.1:1001", "http://127.0.0.1:1002"]
token_file = "TOKEN"

[dev]
gateway = "http://127.0.0.1:1003"
"""


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of contexts, which the command finds."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "tidegate" / "contexts.toml"
    file.parent.mkdir()
    token = tmp_path / "token"
    token.write_text("abc")
    file.write_text(CONTEXTS.replace("TOKEN", str(token)))
    return file


def test_a_gateway_has_a_name_in_the_file_of_contexts(contexts: Path) -> None:
    with connect("dev") as client:
        assert client.base_url == "http://127.0.0.1:1003"
    with connect("prod") as client:
        assert client.base_url == "http://127.0.0.1:1001"
        assert "token" in repr(client._transport._http.auth)
    with connect("http://127.0.0.1:1004") as client:
        assert client.base_url == "http://127.0.0.1:1004"


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        (CONTEXTS, "pord", "has no 'pord', only dev, prod"),
        ("", "prod", "has no 'prod', only nothing"),
        ("[prod", "prod", "contexts.toml: "),
        ("[prod]\ntoken_file = 1", "prod", "contexts.toml: "),
    ],
)
def test_a_name_that_cannot_be_used_says_why(
    contexts: Path, text: str, name: str, reason: str
) -> None:
    contexts.write_text(text)
    with pytest.raises(click.BadParameter, match=reason):
        connect(name)
