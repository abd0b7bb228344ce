"""The API answers as /openapi.json describes it, whatever schemathesis makes of the description."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.hostile.operations import document, operations
from tests.support.children import serving
from tests.support.deadlines import HANGS_S
from tests.support.profiles import examples
from tests.support.tokens import public_jwk, token_of, write_keys

pytestmark = pytest.mark.nightly

ROOT: Final = token_of("root", "read,write,admin,observe >")
READER: Final = token_of("ray", "read prices.>")
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DESCRIBED: Final = schemathesis.openapi.from_dict(document())
STREAMS: Final = ("/subscribe", "/events", "/trace")
"""Ends of paths that answer without an end; the table of hostile requests has their refusals."""
ANSWERED: Final = [it for it in operations() if not it.path.endswith(STREAMS)]
TOPIC: Final = "prices.eu"
CASES: Final = 6
GUARDED_CASES: Final = 2


def served(**variables: str) -> Iterator[str]:
    """The address of a gateway process."""
    with asyncio.Runner() as runner:
        process = serving(**variables)
        _, address = runner.run(process.__aenter__())
        try:
            yield address
        finally:
            runner.run(process.__aexit__(None, None, None))


@pytest.fixture(name="plain", scope="module")
def plain_fixture() -> Iterator[str]:
    """A gateway that asks nobody for anything."""
    for address in served():
        prepare(address, {})
        yield address


@pytest.fixture(name="guarded", scope="module")
def guarded_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that asks for tokens."""
    keys = write_keys(tmp_path_factory.mktemp("keys") / "keys.json", public_jwk("HS256"))
    for address in served(TIDEGATE_AUTH_KEYS=keys):
        prepare(address, ROOT)
        yield address


def prepare(address: str, headers: dict[str, str]) -> None:
    """Make what requests may hit: a topic with a record, and a session with a subscription."""
    with httpx2.Client(base_url=address, headers=headers, trust_env=False) as http:
        answers = [
            http.put(f"/v1/topics/{TOPIC}", json={"key": ["/k"]}),
            http.post(f"/v1/topics/{TOPIC}/messages", json={"k": "a", "px": 1}),
            http.post("/v1/sessions", json={"subscriptions": [{"topic": TOPIC}]}),
        ]
    assert all(answer.is_success for answer in answers), [answer.text for answer in answers]
    SESSIONS[address] = str(answers[2].json()["session"])


SESSIONS: dict[str, str] = {}
"""The session of each gateway, by its address."""


def search(
    address: str, path: str, method: str, headers: dict[str, str], cases: int = CASES
) -> None:
    """Send what schemathesis makes for an operation, half of it to things that are there."""
    operation = DESCRIBED[path][method]
    known = {"topic": TOPIC, "session": SESSIONS[address], "sub": "s1", "record_key": '["a"]'}

    @settings(
        examples(cases),
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(data=st.data())
    def send(data: Any) -> None:
        mode = data.draw(st.sampled_from(list(schemathesis.GenerationMode)))
        case = data.draw(operation.as_strategy(generation_mode=mode))
        if data.draw(st.booleans()):
            given = case.path_parameters or {}
            case.path_parameters = given | {it: known[it] for it in given if it in known}
        case.call_and_validate(base_url=address, headers=headers, checks=CHECKS, timeout=HANGS_S)

    send()


@pytest.mark.parametrize("operation", ANSWERED, ids=lambda it: it.name)
def test_answers_are_as_described(plain: str, operation: Any) -> None:
    search(plain, operation.path, operation.method, {})


@pytest.mark.parametrize("headers", [{}, READER, ROOT], ids=["nobody", "reader", "root"])
@pytest.mark.parametrize("operation", ANSWERED, ids=lambda it: it.name)
def test_answers_to_tokens_are_as_described(
    guarded: str, operation: Any, headers: dict[str, str]
) -> None:
    search(guarded, operation.path, operation.method, headers, GUARDED_CASES)
