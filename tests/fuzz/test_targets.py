"""A short run of every target; the references that they compare with; and that faults are found."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tests.fuzz import documents, http, languages, streams, tokens
from tests.fuzz.__main__ import main, targets
from tests.fuzz.mutating import chunks, mutated
from tests.fuzz.reference import Refused, events, patched, strict_json
from tests.fuzz.target import Target, run
from tidegate.app.http.protocol import GatewayProtocol
from tidegate.keys.errors import JsonInvalid

SECONDS = 1.0


@pytest.mark.nightly
@pytest.mark.parametrize("target", targets(), ids=lambda it: it.name)
def test_a_short_run_finds_nothing(target: Target) -> None:
    """With a fixed seed: the long runs, `python -m tests.fuzz`, take others."""
    outcome = run(target, 7, seconds=SECONDS)
    assert not outcome.findings, "\n".join(map(str, outcome.findings))
    assert outcome.executions > 100
    assert outcome.accepted > 0


@pytest.mark.parametrize("number", [b"0.0e1%024d", b"-0e1%024d", b"1e1%024d", b"0.01e-1%024d"])
def test_a_number_whose_exponent_is_longer_than_a_decimals_is_compared(number: bytes) -> None:
    assert documents.check_text(number % 0)


def test_each_target_has_a_name_of_its_own() -> None:
    names = [target.name for target in targets()]
    assert len(set(names)) == len(names) >= 20


def test_one_seed_makes_the_same_inputs() -> None:
    def inputs(target: Target, seed: int) -> list[Any]:
        random = Random(seed)
        return [target.make(random) for _ in range(20)]

    for target in targets():
        assert repr(inputs(target, 3)) == repr(inputs(target, 3)), target.name


def test_a_fault_is_a_finding_once_and_has_its_input() -> None:
    def check(given: int) -> bool:
        assert given % 5
        return given % 2 == 0

    outcome = run(Target("t", lambda random: random.randrange(50), check), 1, executions=200)
    assert outcome.executions == 200
    [finding] = outcome.findings
    assert isinstance(finding.given, int)
    assert finding.given % 5 == 0
    assert "assert given % 5" in str(finding)
    slow = Target("t", lambda _: 1, lambda _: sum(range(10**6)), cpu_s_max=0.0)
    assert len(run(slow, 1, executions=3).findings) == 1


def test_the_command_prints_a_line_for_each_target(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "paths", "--seconds", "0.1", "--seed", "1", "--executions", "2000"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "seed 1" in printed
    assert "paths" in printed
    with pytest.raises(SystemExit):
        main(["--target", "zzq"])


# A target that cannot fail proves nothing: each kind of fault is planted once.


def found(module: Any, name: str, executions: int = 3_000) -> int:
    target = next(it for it in module.TARGETS if it.name == name)
    return len(run(target, 1, executions=executions).findings)


def lenient(text: bytes) -> None:
    try:
        json.loads(text)
    except ValueError:
        raise JsonInvalid("no JSON") from None


@pytest.mark.parametrize(
    ("module", "name", "patched_in", "attribute", "fault"),
    [
        (documents, "json", documents, "check_json", lenient),
        (documents, "patches", documents, "apply", lambda value, patch: patch),
        (documents, "lines", documents, "one_line", bytes.upper),
        (tokens, "signed", tokens, "_is_sound", lambda *_: False),
        (streams, "sse", streams, "one_line", bytes),
        (streams, "compression", streams, "block", lambda text, _: text),
        (languages, "texts", languages, "KeysError", JsonInvalid),
        (http, "query", http, "unquote_to_bytes", bytes),
    ],
)
def test_a_fault_is_found(
    monkeypatch: pytest.MonkeyPatch,
    module: Any, name: str, patched_in: Any, attribute: str, fault: Any,
) -> None:  # fmt: skip
    assert found(module, name) == 0
    monkeypatch.setattr(patched_in, attribute, fault)
    assert found(module, name) > 0


def test_a_body_that_is_not_what_was_sent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    on_body = GatewayProtocol.on_body
    monkeypatch.setattr(GatewayProtocol, "on_body", lambda it, body: on_body(it, body[:4]))
    assert found(http, "http", 1_000) > 0


# The references


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1}',
        "[]",
        '"\\ud83d\\ude00"',
        " 1 ",
        "-0.0e+1",
        "[" * 64 + "]" * 64,
        '{"":null}',
        "true",
    ],
)
def test_the_reference_takes_json(text: str) -> None:
    assert json.dumps(strict_json(text.encode())) is not None


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[1,]", b"01", b"+1", b"NaN", b"1 2", b"'a'", b'"\x01"', b'"\\ud800"', b'"\xff"',
     b'{"a" 1}', b"{a:1}", b"\xef\xbb\xbf1", b"[" * 65 + b"]" * 65, b"1.", b".5", b'"\\x"', b"nul"],
)  # fmt: skip
def test_the_reference_refuses_what_is_none(text: bytes) -> None:
    with pytest.raises(Refused):
        strict_json(text)


def test_the_reference_patches_as_the_standard_s_own_examples() -> None:
    """RFC 7396, appendix A."""
    for original, patch, result in (
        ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}), ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        (["a", "b"], ["c", "d"], ["c", "d"]), ({"a": "foo"}, None, None), ([1, 2], {"a": "b"},
        {"a": "b"}), ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ):  # fmt: skip
        assert patched(original, patch) == result


def test_the_reference_reads_streams_as_the_standard_s_own_examples() -> None:
    """WHATWG HTML, 9.2.6."""
    stream = (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third\n\n"
    )
    assert events(stream) == [
        ("message", "first event", "1"), ("message", "second event", ""), ("message", " third", ""),
    ]  # fmt: skip
    assert events(b"data\n\ndata\ndata\n\ndata:") == [("message", "", ""), ("message", "\n", "")]
    assert events(b"data:test\n\ndata: test\n\n") == [("message", "test", "")] * 2


def test_changes_and_cuts() -> None:
    random = Random(1)
    assert any(mutated(random, "abc", ("x",)) != "abc" for _ in range(9))
    assert b"".join(chunks(random, b"abcdef")) == b"abcdef"
