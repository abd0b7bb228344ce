"""The check of running streams, once a second: it ends exactly those whose access has ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.app.access.test_authorization import READER, ROOT, guarded
from tests.support.gateways import Running
from tests.support.rules import rule
from tests.support.subject_streams import ends, stream_of
from tests.support.tokens import token_of
from tidegate.app.access.access import Access
from tidegate.app.streams.registry import Sessions
from tidegate.conflation.outputs import CloseReason

SHORT_S = 600


@pytest.fixture(name="asked")
def asked_fixture(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whom the looks have asked about; there is none but those of a test."""
    monkeypatch.setattr("tidegate.app.access.access.CHECK_EVERY_S", 3600.0)
    found: list[str] = []
    ending = Access.ending

    def noted(access: Access, subject: Any, *, are_new: bool = True) -> CloseReason | None:
        found.append(f"{subject.sub}{' anew' if are_new else ''}")
        return ending(access, subject, are_new=are_new)

    monkeypatch.setattr(Access, "ending", noted)
    return found


def parts(running: Running) -> tuple[Access, Sessions]:
    app: Any = running.server.config.app
    return app.state.access, app.state.gateway.sessions


@rule("access-9")
async def test_a_look_asks_about_those_that_it_may_concern(
    tmp_path: Path, asked: list[str]
) -> None:
    short = token_of("sue", "read prices.>", exp=int(time.time()) + SHORT_S)
    async with guarded(tmp_path) as running:
        access, sessions = parts(running)

        def look(**changes: bool) -> list[str]:
            asked.clear()
            given = {"are_new": False, "are_revoked": False, **changes}
            sessions.end_unentitled(access, **given)
            return sorted(asked)

        async with stream_of(running, READER), stream_of(running, short):
            assert look() == ["ann anew", "sue anew"]
            assert look() == []
            assert look(are_revoked=True) == ["ann", "sue"]
            assert look(are_new=True) == ["ann anew", "sue anew"]
            now_ms, later_s = access.now_ms, [0]
            access.now_ms = lambda: now_ms() + later_s[0] * 1_000
            # Its end, and then the tolerance for clocks.
            for later_s[0], found in (
                (SHORT_S - 5, []),
                (SHORT_S + 5, ["sue"]),
                (SHORT_S + 6, ["sue"]),
            ):
                assert look() == found
            later_s[0] = SHORT_S + 60
            assert look() == ["sue"]
            assert look() == []


@rule("access-9")
async def test_a_change_between_a_request_and_its_stream_is_found(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guarded(tmp_path) as running:
        access, sessions = parts(running)
        async with stream_of(running, READER) as stream:
            # The look that brought the change came before the session was there.
            monkeypatch.setattr(access, "current", lambda subject: None)
            sessions.end_unentitled(access, are_new=False, are_revoked=False)
            await ends(stream)


async def test_ends_of_tokens_are_kept_for_sessions_that_are_there(
    tmp_path: Path, asked: list[str]
) -> None:
    # As many ended ones are remembered as may be open.
    async with guarded(tmp_path, sessions_max=4) as running:
        access, sessions = parts(running)
        for _ in range(20):
            async with stream_of(running, READER):
                sessions.end_unentitled(access, are_new=False, are_revoked=False)
        listed = await running.http.get("/v1/sessions", headers=ROOT)
        assert listed.status_code == 200
        sessions.end_unentitled(access, are_new=False, are_revoked=False)
        assert len(sessions._token_ends) <= 2 * len(sessions._sessions)
