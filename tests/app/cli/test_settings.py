"""Sources of a setting's value, refusals of one that cannot be used, and the reference page."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from tidegate.app.cli.settings import load_settings as load
from tidegate.app.cli.settings import settings_page, variable_of
from tidegate.app.cli.terminal import ConfigurationInvalid
from tidegate.app.settings.checks import is_loopback
from tidegate.app.settings.settings import SETTINGS, Settings
from tidegate.keys.text.duration import Duration
from tidegate.keys.text.size import size_text


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load_settings(
    config: Path | None = None,
    /,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """The settings where these are all the variables there are."""
    with pytest.MonkeyPatch.context() as patched:
        for name in [name for name in os.environ if name.startswith("TIDEGATE_")]:
            patched.delenv(name)
        for name, text in (environment or {}).items():
            patched.setenv(name, text)
        return load(config, overrides=overrides)


def written(text: str, name: str = "some.toml") -> Path:
    path = Path(name)
    path.write_text(text, "utf-8")
    return path


def refusal(config: Path | None = None, /, **variables: str) -> str:
    """The one line that loading is refused with."""
    with pytest.raises(ConfigurationInvalid) as raised:
        load_settings(config, environment=variables)
    line = str(raised.value)
    assert line
    assert "\n" not in line
    return line


def test_the_contracts_defaults() -> None:
    settings = load_settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert (settings.queue_messages_max, settings.queue_bytes_max) == (10_000, 8 << 20)
    assert settings.write_timeout == Duration.parse("10s")
    assert settings.session_retention == Duration.parse("60s")
    assert settings.heartbeat == Duration.parse("15s")
    assert settings.default_pace == "batch"
    assert (settings.message_bytes_max, settings.request_bytes_max) == (1 << 20, 64 << 20)
    assert settings.request_messages_max == 100_000
    assert (settings.topics_max, settings.topic_keys_max) == (10_000, 1_000_000)
    assert (settings.sessions_max, settings.options_characters_max) == (10_000, 4096)
    assert (settings.store_dir, settings.durability) == ("./tidegate-data", "process")


def test_each_source_goes_before_the_one_below() -> None:
    config = written('port = 1\nheartbeat = "1s"\ntopics_max = 1\nsessions_max = 1')
    settings = load_settings(
        config,
        environment={"TIDEGATE_HEARTBEAT": "2s", "TIDEGATE_TOPICS_MAX": "2"},
        overrides={"topics_max": 3, "port": None},
    )
    assert settings.sessions_max == 1
    assert settings.port == 1  # a flag that was not given is none
    assert settings.heartbeat == Duration.parse("2s")
    assert settings.topics_max == 3


def test_a_wrong_value_is_refused_also_where_another_goes_before_it() -> None:
    config = written("port = 99999")
    assert "some.toml: 'port'" in refusal(config, TIDEGATE_PORT="1")
    with pytest.raises(ConfigurationInvalid, match=r"some.toml: 'port'"):
        load_settings(config, overrides={"port": 1})
    with pytest.raises(ConfigurationInvalid, match="TIDEGATE_PORT"):
        load_settings(environment={"TIDEGATE_PORT": "abc"}, overrides={"port": 1})


def test_what_is_wrong_only_together_is_seen_together() -> None:
    config = written('host = "0.0.0.0"')
    assert load_settings(config, overrides={"insecure": True}).insecure
    assert load_settings(config, environment={"TIDEGATE_HOST": "localhost"}).host == "localhost"


def test_the_file_in_the_working_directory_is_read_and_another_one_instead() -> None:
    written("port = 1", "tidegate.toml")
    assert load_settings().port == 1
    assert load_settings(written("port = 2")).port == 2


def test_building_settings_reads_nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    written("port = 1", "tidegate.toml")
    monkeypatch.setenv("TIDEGATE_PORT", "2")
    assert Settings().port == 8080
    assert load().port == 2


def test_the_store_is_called_data_outside() -> None:
    assert load_settings(environment={"TIDEGATE_DATA": ":memory:"}).keeps_nothing
    assert load_settings(written('data = "/a"')).store_dir == "/a"
    assert load_settings(overrides={"data": Path("/a")}).store_dir == "/a"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().port = 1


def test_a_list_in_the_environment_has_commas() -> None:
    settings = load_settings(environment={"TIDEGATE_ALLOWED_HOSTS": "Gateway, a.example ,"})
    assert settings.allowed_hosts == ("gateway", "a.example")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("[server]\nport = 1", "'server': no such setting; settings are", id="table"),
        pytest.param("PORT = 2\nport = 1", "'PORT': no such setting; did you mean port", id="case"),
        pytest.param("prot = 1", "'prot': no such setting; did you mean port?", id="B106-unknown"),
        pytest.param('port = "1"', "some.toml: 'port': expected a whole number", id="B106-text"),
        pytest.param("port = true", "some.toml: 'port': expected a whole number", id="B106-bool"),
        pytest.param("port = 1.0", "some.toml: 'port': expected a whole number", id="B106-float"),
        pytest.param("port = -1", "'port': expected at least 0", id="B106-negative"),
        pytest.param("port = 65536", "'port': expected at most 65535", id="B106-above"),
        pytest.param("topics_max = 0", "'topics_max': expected at least 1", id="B106-none"),
        pytest.param("heartbeat = 15", "expected a duration in quotes", id="B106-no-unit"),
        pytest.param('heartbeat = "15"', "expected an integer and a unit", id="B106-text-no-unit"),
        pytest.param('heartbeat = "1ns"', "'heartbeat': expected at least 100ms", id="B106-short"),
        pytest.param('queue_bytes_max = "8"', "expected an integer and a unit", id="B106-size"),
        pytest.param("insecure = 1", "expected true or false", id="B106-flag"),
        pytest.param('insecure = "true"', "expected true or false", id="B106-flag-text"),
        pytest.param('default_pace = "fast"', "'default_pace': Input should be", id="B106-choice"),
        pytest.param('allowed_hosts = "a"', "expected a list of host names", id="B106-list"),
        pytest.param('allowed_hosts = ["a/b"]', "expected a list of host names", id="B106-host"),
        pytest.param('data = ""', "expected a text, not empty", id="B106-empty"),
        pytest.param("port = 1\nport = 2", "not valid TOML", id="B106-twice"),
        pytest.param("port = ", "not valid TOML", id="B106-no-toml"),
        pytest.param("[port]\na = 1", "'port': expected a whole number", id="B106-table"),
        pytest.param('"a\\nb" = 1', "'a\\nb': no such setting", id="B106-line-break"),
        pytest.param('mergers = "a.b:c"', "expected a list of functions", id="mergers-list"),
        pytest.param('mergers = ["a.b.c"]', "expected a list of functions", id="mergers-name"),
        pytest.param("mergers = [5]", "expected a list of functions", id="mergers-number"),
        pytest.param('host = "0.0.0.0"', "--insecure", id="B107-open-door"),
        pytest.param("workers = 0", "'workers': expected at least 1", id="workers"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_in_one_line(text: str, line: str) -> None:
    assert line in refusal(written(text))


@pytest.mark.parametrize(
    ("variable", "text", "line"),
    [
        ("PORT", "abc", "TIDEGATE_PORT: expected a whole number"),
        ("PORT", "1_000", "TIDEGATE_PORT: expected a whole number"),
        ("PORT", "+1", "TIDEGATE_PORT: expected a whole number"),
        ("PORT", "٨", "TIDEGATE_PORT: expected a whole number"),
        ("PORT", "", "TIDEGATE_PORT: expected a whole number"),
        ("INSECURE", "yes", "TIDEGATE_INSECURE: expected true or false"),
        ("WRITE_TIMEOUT", "10", "TIDEGATE_WRITE_TIMEOUT: expected an integer and a unit"),
        ("QUEUE_MESAGES_MAX", "1", "did you mean TIDEGATE_QUEUE_MESSAGES_MAX?"),
        ("REDIS", "", "TIDEGATE_REDIS: expected a text, not empty"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(variable: str, text: str, line: str) -> None:
    assert line in refusal(**{"TIDEGATE_" + variable: text})


def test_a_flag_that_cannot_be_used_is_named() -> None:
    with pytest.raises(ConfigurationInvalid, match=r"^--queue-messages-max: expected at least 1$"):
        load_settings(overrides={"queue_messages_max": 0})


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_named_file_must_be_readable(name: str) -> None:
    assert "cannot be read" in refusal(Path(name))


def test_a_file_that_is_no_text_is_refused() -> None:
    Path("b.toml").write_bytes(b"\xff\xfe")
    assert "not valid TOML" in refusal(Path("b.toml"))


def test_a_strangers_variable_is_mentioned_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_settings(
            environment={
                "TIDEGATE_SOMETHING_ELSE": "1",
                "TIDEGATE_REQUIRE_ALL": "1",
                "TIDEGATE_HYPOTHESIS_PROFILE": "nightly",
                "TIDEGATE_TICKS": "ticks",
                "TIDEGATE_GATEWAY": "http://x",
            }
        )
    assert [record.args for record in caplog.records] == [("TIDEGATE_SOMETHING_ELSE",)]


def test_every_default_survives_being_given_as_text() -> None:
    """What the page shows as default can be written in the environment."""
    defaults = Settings()
    values = dict(zip(SETTINGS, (value for _, value in defaults), strict=True))
    variables = {
        variable_of(name): _text_of(name, value)
        for name, value in values.items()
        if value is not None
    }
    assert load_settings(environment=variables) == defaults


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.1", False),
        ("localhost.evil.example", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, is_so: bool) -> None:
    assert is_loopback(host) is is_so


def _text_of(name: str, value: object) -> str:
    if isinstance(value, int) and "bytes" in name:
        return size_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def row(name: str) -> list[str]:
    [line] = [line for line in settings_page().splitlines() if line.startswith(f"| `{name}` |")]
    return [cell.strip() for cell in line.strip("|").split("|")][:-1]


def test_values_are_shown_as_they_are_written() -> None:
    assert row("port") == ["`port`", "`8080`", "0 to 65535"]
    assert row("queue_bytes_max")[1:] == ["`8MiB`", "1KiB to 4GiB"]
    assert row("write_timeout")[1:] == ["`10s`", "100ms to 1h"]
    assert row("insecure")[1:] == ["`false`", ""]
    assert row("allowed_hosts")[1:] == ["`[]`", ""]


def test_the_store_has_its_name_outside() -> None:
    assert row("data")[0] == "`data`"
    assert variable_of("data") == "TIDEGATE_DATA"
