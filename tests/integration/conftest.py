"""A certificate authority, and a server's certificate of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.certificates import Authority, Signed


@pytest.fixture(name="authority")
def authority_fixture(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(name="server")
def server_fixture(authority: Authority) -> Signed:
    return authority.server()
