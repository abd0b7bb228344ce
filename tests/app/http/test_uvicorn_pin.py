"""A uvicorn that is built otherwise is refused at start."""

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidegate.app.http.transport.uvicorn_pin import (
    UvicornUnknown,
    missing_parts,
    require_known_uvicorn,
)


def test_the_installed_uvicorn_has_all_that_we_build_on() -> None:
    assert missing_parts() == []


def test_a_missing_part_is_named_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(HttpToolsProtocol, "on_header")
    with pytest.raises(UvicornUnknown, match=r"HttpToolsProtocol\.on_header\.$"):
        require_known_uvicorn()


def test_a_renamed_attribute_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(self: HttpToolsProtocol) -> None:
        self.elsewhere = 1  # type: ignore[attr-defined]  # it is not there, as is shown

    monkeypatch.setattr(HttpToolsProtocol, "__init__", begin)
    assert "HttpToolsProtocol.pipeline" in missing_parts()
