"""The whole command: several sources, tokens, metrics, exit codes."""

from __future__ import annotations

import signal
import urllib.request
from pathlib import Path

import pytest

from tests.pipeline.ingest.ingesting import definitions, eventually, ingesting, journal
from tests.support import commands
from tests.support.commands import serving_here
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port
from tests.support.rules import rule
from tests.support.tokens import claims, grant, public_jwk, signed, write_keys
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.errors import KeyMismatch, SourceLost
from tidegate.pipeline.ingest.intake import Intake
from tidegate.pipeline.operations.shutdown import Stop
from tidegate.pipeline.operations.supervisor import RunOptions
from tidegate.pipeline.operations.threads import run_threads

pytestmark = pytest.mark.system
FILE = """
[ingest.a]
key = ["/k"]
source = {kind = "file", path = "a.ndjson"}
sink = {topic = "t"}
[ingest.b]
source = {kind = "file", path = "b.ndjson"}
sink = {topic = "t"}
"""


def test_two_sources_fill_one_topic(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"k":1}\n')
    with serving_here() as address, ingesting(tmp_path, FILE, address) as lines:
        eventually(lambda: journal(address, "t"), [{"k": 1}])
        (tmp_path / "b.ndjson").write_text('{"k":2}\n{"l":2}\n')
        eventually(lambda: journal(address, "t"), [{"k": 1}, {"k": 2}])
        eventually(lambda: len(journal(address, "t.dead")), 1)
        assert lines[0] == f"a: file {tmp_path}/a.ndjson to topic t"


@rule("ingest-6")
def test_a_gateway_that_has_lost_the_topic_gets_everything_again(tmp_path: Path) -> None:
    port = lasting_port()
    address = f"http://127.0.0.1:{port}"
    definition = FILE.split("[ingest.b]")[0]
    path = tmp_path / "a.ndjson"
    path.write_text('{"k":1}\n{"k":2}\n')
    with serving_here(port=port):
        ingested = ingesting(tmp_path, definition, address)
        lines = ingested.__enter__()
        eventually(lambda: len(journal(address, "t")), 2)
    try:
        with serving_here(port=port), path.open("a") as file:
            file.write('{"k":3}\n')
            file.flush()
            eventually(lambda: journal(address, "t"), [{"k": 1}, {"k": 2}, {"k": 3}])
    finally:
        ingested.__exit__(None, None, None)
    assert any("started again in 1 s" in line for line in lines)


def test_a_token_needs_what_the_page_says_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    grants = ["read,write,admin t", "read,write,admin t.dead", "read,write tidegate.pipelines"]
    monkeypatch.setenv("TIDEGATE_TOKEN", signed(claims("ingest", *map(grant, grants))))
    (tmp_path / "a.ndjson").write_text('{"k":1}\n{}\n')
    with serving_here(auth_keys=keys) as address:
        with ingesting(tmp_path, FILE, address):
            eventually(lambda: journal(address, "t"), [{"k": 1}])
            eventually(lambda: len(journal(address, "t.dead")), 1)
        states = {row["pipeline"]: row["state"] for row in journal(address, "tidegate.pipelines")}
        assert states == {"a": "ended", "b": "ended"}


def run_first(folder: Path, address: str) -> None:
    """Run the first source of the file until it ends."""
    [read] = definitions(folder, FILE.split("[ingest.b]")[0], address)
    run_threads([Intake(read, print)], RunOptions(), Stop(), print)


def test_a_source_that_is_lost_ends_while_others_go_on_and_the_command_with_the_last(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text('{"k":1}\n{"k":2}\n')
    with serving_here() as address:
        with ingesting(tmp_path, FILE, address):
            eventually(lambda: len(journal(address, "t")), 2)
        path.write_text('{"k":1}\n')
        with pytest.raises(SourceLost, match=r"a: .*has 8 bytes, but 16 of them were read before"):
            run_first(tmp_path, address)


def test_a_topic_with_another_key_ends_the_source_because_no_start_mends_it(
    tmp_path: Path,
) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("t", {"key": ["/other"]})
        with pytest.raises(KeyMismatch, match=r"a: topic t exists with key \['/other'\]"):
            run_first(tmp_path, address)


def test_the_command_serves_metrics_and_ends_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"k":1}\n{}\n')
    (tmp_path / "s.toml").write_text(FILE)
    port = str(lasting_port())
    with serving_here() as address:
        command = commands.start(
            *("ingest", str(tmp_path / "s.toml"), "--metrics-port", port), TIDEGATE_GATEWAY=address
        )
        eventually(lambda: journal(address, "t"), [{"k": 1}])
        wanted = 'tidegate_pipeline_dead_letters_total{query="a"} 1.0'
        eventually(lambda: wanted in scraped(port), True)
        assert 'tidegate_pipeline_lag_messages{query="a"} 0.0' in scraped(port)
        command.send_signal(signal.SIGTERM)
        out, err = command.communicate(timeout=HANGS_S)
        assert (command.returncode, err) == (0, "")
        assert "stopping …" in out


def scraped(port: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANGS_S) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["none.toml"], 78, "none.toml: No such file or directory"),
        ([], 2, "Missing argument 'FILE'"),
        (["s.toml", "--gateway", "x"], 2, "--gateway: expected an address such as"),
    ],
)
def test_what_is_wrong_with_the_command_is_a_sentence(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    (tmp_path / "s.toml").write_text(FILE)
    ended = commands.run("ingest", *words, cwd=str(tmp_path))
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1
